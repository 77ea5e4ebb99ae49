// SPDX-License-Identifier: MIT
/// @file
/// Immediate data that say which of many consecutive things a message is about.
///
/// Written out in lesson 05_write_with_imm, where the things are the fragments of a file.
#pragma once

#include <cstdint>

namespace rdmacommon {

/// Consecutive things, numbered from 0 on: the first of them, and how many they are.
struct Run {
  static constexpr uint32_t first_limit = 1U << 24; ///< `first` is less than this.
  static constexpr uint32_t count_limit = 1U << 8;  ///< `count` is less than this.

  uint32_t first; ///< 24 bits.
  uint32_t count; ///< 8 bits; what 0 means is up to who uses it.
};

/// A Run as ibv_send_wr::imm_data takes it: 24 bits first, 8 bits count.
/// @return 32 bits in network byte order
/// @throws Error if a number does not fit
uint32_t to_immediate(Run run);

/// The reverse, for ibv_wc::imm_data. Any 32 bits are a Run; whether it makes sense is for the
/// caller to check.
/// @param imm_data in network byte order, as verbs has it
Run from_immediate(uint32_t imm_data);

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
/// @file
/// A checksum, for programs that show that what arrives is what was sent.
///
/// Introduced in lesson 20_ring_workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacommon {

/// FNV-1a with 32 bits (draft-eastlake-fnv). It finds mistakes; an attacker can make another text
/// with the same sum.
/// @return the sum, in host byte order
constexpr uint32_t checksum(std::span<const std::byte> bytes) {
  uint32_t sum = 2166136261;
  for (const std::byte byte : bytes)
    sum = (sum ^ static_cast<uint32_t>(byte)) * 16777619;
  return sum;
}

} // namespace rdmacommon

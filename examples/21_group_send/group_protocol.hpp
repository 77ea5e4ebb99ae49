// SPDX-License-Identifier: MIT
// What the two sides of 21_group_send have agreed on.
#pragma once

#include <rdmacommon/slot_ring.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

// [protocol]
// What SlotHeader::kind says. A slot that nobody has written has 0.
enum Kind : uint16_t { begin = 1, data = 2, filler = 3, end = 4 };
constexpr uint32_t protocol_version = 1;

// The bodies, which follow the header, in network byte order. "data" has the checksum of the bytes
// that follow it. The id of "data" is the number of the process that has sent it (32 bits), and the
// number of this message among those of the process, from 0 on (32 bits).
struct Begin {
  uint32_t version, slots, slot_size, processes;
};
struct EndMessage {
  uint64_t messages, bytes; // of "data", headers not counted
};
struct Checksum {
  uint32_t value;
};

// At most this many runs can be under way at a time, in each direction: each run has at least one
// slot, and there is a receive for each.
inline uint32_t max_runs(const rdmacommon::RingShape &shape) {
  return std::min(shape.slots, 1024U);
}
// [protocol]

// A message as it stands in its slots: the header, and what follows it.
template <typename Body>
void write_message(std::span<std::byte> slots, rdmacommon::SlotHeader header, const Body &body) {
  header = rdmacommon::to_wire(header);
  std::memcpy(slots.data(), &header, sizeof header);
  std::memcpy(slots.data() + sizeof header, &body, sizeof body);
}

// What the user chooses.
struct Settings {
  rdmacommon::RingShape shape{.slots = 1024, .slot_size = 64};
  uint32_t group = rdmacommon::SlotRing::longest_run, processes = 4, messages = 1000, longest = 300;
  uint32_t repeats = 5, milliseconds = 20, spin = 1000;
  std::chrono::seconds timeout{5};
};

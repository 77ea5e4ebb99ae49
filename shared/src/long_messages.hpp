// SPDX-License-Identifier: MIT
// Messages of more slots than immediate data can count. They travel in several runs, one after the
// other by the same queue pair, which keeps their order. Each run but the last has longest_run
// slots. The slots are where the message is put together.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/slot_ring.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <algorithm>
#include <cstdint>

namespace rdmashared {

// How many runs a message takes: so many receives, and so much of the window.
constexpr uint32_t runs_of(uint32_t slots) {
  constexpr uint32_t run = rdmacommon::SlotRing::longest_run;
  return slots / run + (slots % run != 0);
}

// Slots of the longest message that a window has room for.
constexpr uint32_t longest_in(uint32_t window) {
  constexpr uint32_t run = rdmacommon::SlotRing::longest_run;
  constexpr uint32_t all = rdmacommon::SlotRing::max_message_slots;
  return window < runs_of(all) ? window * run : all;
}

// In immediate data, for a message that the slots only name.
constexpr uint32_t named_count(uint32_t slots) {
  return std::min(slots, rdmacommon::SlotRing::longest_run);
}

// [cut]
// Slots that must be sent: those of a group of messages, or of one long message, which is cut.
class Cut {
public:
  Cut() = default;
  // @param bytes to write there, from the first slot on; the slots behind them stay as they are
  Cut(uint32_t first, uint32_t slots, uint32_t bytes)
      : first_(first), slots_(slots), bytes_(bytes) {}
  bool is_empty() const { return slots_ == 0; }

  // Adds the next run to the queue, which has room.
  void add_next(rdmacommon::SendQueue &queue, const rdmacommon::SlotMirror &mirror) {
    const uint32_t slots = std::min(slots_, rdmacommon::SlotRing::longest_run);
    // The last run gets all that is left: add_run() throws if that does not fit.
    const uint32_t bytes = slots == slots_ ? bytes_ : std::min(bytes_, slots * mirror.slot_size);
    add_run(queue, mirror, {.first = first_, .count = slots}, bytes);
    first_ += slots;
    slots_ -= slots;
    bytes_ -= bytes;
  }

private:
  uint32_t first_ = 0, slots_ = 0, bytes_ = 0;
};
// [cut]

// [joined]
// At the other side: a long message of which the first run has come, but not yet the last one.
class Joined {
public:
  bool is_open() const { return slots_ > 0; }
  uint32_t first() const { return first_; } // slot of the message
  void begin(uint32_t first, uint32_t slots) {
    first_ = next_ = first;
    slots_ = slots;
  }
  // @return whether the message is whole now
  // @throws Error if it is not the next run of this message
  bool add(rdmacommon::Run run) {
    if (run.first != next_ || run.count != std::min(slots_, rdmacommon::SlotRing::longest_run))
      throw rdmacommon::Error("a long message", "its next run is missing");
    next_ += run.count;
    slots_ -= run.count;
    return slots_ == 0;
  }

private:
  uint32_t first_ = 0, next_ = 0, slots_ = 0; // slots that have not come
};
// [joined]

} // namespace rdmashared

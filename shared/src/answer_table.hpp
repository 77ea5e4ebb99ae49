// SPDX-License-Identifier: MIT
// The answers to the requests of one ring, in the shared memory behind it (its appendix): what has
// become of each request, where its caller can sleep until that is known, and the bytes of the
// answer.
//
// A request's slots are its caller's from the claim until the answer has been collected. In between
// they are the sender's, and then the server's. One word says whose: each change is one
// compare-and-swap, so a caller that gives up and an answer that comes, or a caller that dies,
// cannot both win.
#pragma once

#include "bells.hpp"
#include "wire.hpp"

#include "rdmashared/caller.hpp"

#include <rdmacommon/slot_ring.hpp>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace rdmashared {

// What the callers of a ring are told about its connection.
struct LaneStatus {
  std::atomic<uint32_t> is_up;
  uint32_t server;               // which of the sender's servers it leads to
  uint32_t largest;              // Shape::largest
  std::atomic<uint32_t> longest; // slots of a message, as far as the window goes
};

// [answer-control]
enum class AnswerState : uint32_t {
  none,
  waiting,  // the caller wants it
  unwanted, // nobody will collect it: the sender gives the slots back when the answer comes
  answered, // it is there
};

struct AnswerControl {
  std::atomic<uint32_t> word; // bits 0-2: AnswerState; 3-4: sleeps_*; 5-31: the lap
  Outcome outcome;            // valid once the word says answered
  uint32_t length;   // bytes of the answer; bit 31: they are where the data connection writes
  uint32_t any_bell; // valid if the word says sleeps_on_any
};
constexpr uint32_t sleeps_on_its_own = 8; // a caller, on the bell of this slot
constexpr uint32_t sleeps_on_any = 16;    // one that waits for other answers as well, on that bell
// [answer-control]

class AnswerTable {
public:
  // Of one ring. A caller that shares one may be woken for nothing.
  static constexpr uint32_t any_bells = 64;

  // How large an appendix a ring needs.
  static uint64_t bytes_for(const Shape &shape);

  // @param ring    with such an appendix; outlives this object
  // @param largest Shape::largest; the sender's, who has made the ring, says it to the others in
  //                LaneStatus
  AnswerTable(rdmacommon::SlotRing &ring, uint32_t largest);
  // In a process that has attached: as the sender has set it up.
  explicit AnswerTable(rdmacommon::SlotRing &ring);

  LaneStatus &status() const { return *status_; }
  std::span<std::byte> slots() const { return slots_; } // what the server writes answers into
  std::span<std::byte> data() const { return data_; }   // what its data connection writes into
  uint32_t largest() const { return largest_; }

  // The caller's.
  // Before its request is published.
  void expect(uint64_t position, AnswerState waiting_or_unwanted);
  // Sleeps or spins until the answer is there. `is_over` is asked now and then: the sender may have
  // died.
  // @return false if `limit` has passed
  bool wait(uint64_t position, std::chrono::milliseconds limit, Waiting how,
            const std::function<bool()> &is_over);
  // For a caller that sleeps for many answers on one bell: any_bell(number). Reads the bell before.
  // @return false if this answer has come already
  bool will_sleep_on_any(uint64_t position, uint32_t number);
  std::atomic<uint32_t> &any_bell(uint32_t number) const { return bells_[number % any_bells]; }
  bool is_waiting(uint64_t position) const; // whether it has not come yet
  // Whether it is there. Neither: the sender has given this process up, and the slots are the
  // sender's.
  bool is_answered(uint64_t position) const;
  struct Answer {
    Outcome outcome;
    std::span<const std::byte> bytes;
  };
  Answer answer(uint64_t position) const; // once it has come, until its slots go back
  // The caller does not want it any more. If the answer is there already, the slots go back now.
  // @param run the slots of the request
  void drop(const rdmacommon::SlotRun &run);

  // The sender's. Tells the caller, which wake() wakes if it sleeps. @return false: no caller wants
  // to know, and the sender gives the slots back
  // @param is_long whether the data connection has brought it
  bool deliver(uint64_t position, Outcome outcome, uint32_t length, bool is_long = false);
  // Wakes all that sleep for what has been delivered since the last time.
  struct Wakes {
    uint32_t calls, callers; // system calls, and sleepers that these have woken
  };
  Wakes wake();
  // Of a caller that has died before its answer has come: nobody will collect it.
  void abandon(uint64_t position);

private:
  struct Layout;
  void attach(const Layout &layout);
  AnswerControl &control(uint64_t position) const {
    return controls_[position & (ring_.shape().slots - 1)];
  }
  uint32_t word(uint64_t position, AnswerState state) const {
    const uint64_t lap = position >> std::countr_zero(ring_.shape().slots);
    return static_cast<uint32_t>(lap << 5) | static_cast<uint32_t>(state);
  }
  bool change(uint64_t position, AnswerState from, AnswerState to, uint32_t *sleeps = nullptr);
  bool will_sleep(uint64_t position, uint32_t how);
  void will_ring(uint32_t bell, uint32_t bits);
  // The bell of a slot's answer, of which 32 slots have one, and its bit there.
  std::atomic<uint32_t> &bell_of(uint64_t slot) const { return bells_[any_bells + slot / 32]; }
  static uint32_t bit_of(uint64_t slot) { return uint32_t{1} << slot % 32; }

  rdmacommon::SlotRing &ring_;
  uint32_t largest_;
  LaneStatus *status_ = nullptr;
  AnswerControl *controls_ = nullptr;
  std::atomic<uint32_t> *bells_ = nullptr; // first those for any answers, then those of the slots
  std::span<std::byte> slots_, data_;
  struct Ring {
    uint32_t bell, bits;
  };
  std::vector<Ring> to_ring_;
};

} // namespace rdmashared

// SPDX-License-Identifier: MIT
#include "answer_table.hpp"

#include "waiting.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <sched.h>

#include <algorithm>
#include <string>

namespace rdmashared {
namespace {

using rdmacommon::Error, rdmacommon::SlotRing, rdmacommon::SlotRun;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint32_t sleeps_mask = sleeps_on_its_own | sleeps_on_any; // beside the state
constexpr uint32_t long_answer = uint32_t{1} << 31;                 // in AnswerControl::length
constexpr milliseconds liveness_interval(100); // how often a sleeper asks whether the sender lives

uint64_t pages(uint64_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

} // namespace

const char *words_for(Outcome outcome) {
  switch (outcome) {
  case Outcome::response:
    return "it has been answered";
  case Outcome::refused:
    return "the server could not answer it";
  case Outcome::lost:
    return "the connection broke while it was under way; the server may have carried it out, or "
           "not";
  case Outcome::not_sent:
    return "there is no connection to the server; it has not been sent";
  }
  return "nobody knows";
}

// [layout]
struct AnswerTable::Layout {
  uint64_t controls, bells, slots, data, length; // from the appendix's beginning, in bytes

  Layout(uint32_t count, uint32_t slot_size, uint32_t largest) {
    controls = 64; // behind the LaneStatus
    bells = controls + uint64_t{count} * sizeof(AnswerControl);
    slots = pages(bells + (any_bells + (uint64_t{count} + 31) / 32) * sizeof(uint32_t));
    data = slots + pages(uint64_t{count} * slot_size);
    length = data + pages(uint64_t{count} * largest);
  }
};
// [layout]

uint64_t AnswerTable::bytes_for(const Shape &shape) {
  return Layout(shape.slots, shape.slot_size, shape.largest).length;
}

AnswerTable::AnswerTable(SlotRing &ring, uint32_t largest) : ring_(ring), largest_(largest) {
  attach(Layout(ring.shape().slots, ring.shape().slot_size, largest));
  status_->largest = largest;
}

AnswerTable::AnswerTable(SlotRing &ring) : ring_(ring), largest_(0) {
  attach(Layout(ring.shape().slots, ring.shape().slot_size, 0));
  largest_ = status_->largest; // copied, then checked, then used
  attach(Layout(ring.shape().slots, ring.shape().slot_size, largest_));
}

void AnswerTable::attach(const Layout &layout) {
  static_assert(sizeof(AnswerControl) == 16 && sizeof(LaneStatus) <= 64);
  const std::span<std::byte> all = ring_.appendix();
  if (all.size() < layout.length)
    throw Error("the shared memory", "it is too small for the answers");
  status_ = std::launder(reinterpret_cast<LaneStatus *>(all.data()));
  controls_ = std::launder(reinterpret_cast<AnswerControl *>(all.data() + layout.controls));
  bells_ = std::launder(reinterpret_cast<std::atomic<uint32_t> *>(all.data() + layout.bells));
  slots_ = all.subspan(layout.slots, size_t{ring_.shape().slots} * ring_.shape().slot_size);
  data_ = all.subspan(layout.data, size_t{ring_.shape().slots} * largest_);
}

// [change]
// From one state to another, if it is this position's still. A slot that has begun a new lap is
// another request's.
bool AnswerTable::change(uint64_t position, AnswerState from, AnswerState to, uint32_t *sleeps) {
  std::atomic<uint32_t> &word_now = control(position).word;
  uint32_t seen = word_now.load(std::memory_order_acquire);
  do
    if ((seen & ~sleeps_mask) != word(position, from))
      return false;
  while (!word_now.compare_exchange_weak(seen, word(position, to), std::memory_order_acq_rel));
  if (sleeps)
    *sleeps = seen & sleeps_mask;
  return true;
}
// [change]

void AnswerTable::expect(uint64_t position, AnswerState waiting_or_unwanted) {
  // Nobody else looks at it before the request is published.
  control(position).word.store(word(position, waiting_or_unwanted), std::memory_order_relaxed);
}

bool AnswerTable::is_waiting(uint64_t position) const {
  const uint32_t now = control(position).word.load(std::memory_order_acquire);
  return (now & ~sleeps_mask) == word(position, AnswerState::waiting);
}

bool AnswerTable::is_answered(uint64_t position) const {
  return control(position).word.load(std::memory_order_acquire) ==
         word(position, AnswerState::answered);
}

// [wait]
bool AnswerTable::wait(uint64_t position, milliseconds limit, Waiting how,
                       const std::function<bool()> &is_over) {
  if (!is_waiting(position))
    return true;
  auto now = steady_clock::now(); // no oftener than needed: it can be a system call
  const auto deadline = rdmacommon::deadline_in(limit);
  const auto spin_end = how == Waiting::poll   ? deadline
                        : how == Waiting::spin ? std::min(now + spin_time, deadline)
                                               : now;
  for (uint32_t looks = 1; now < spin_end && is_waiting(position);
       ++looks, now = steady_clock::now())
    if (how == Waiting::poll) {
      sched_yield(); // more callers may look than there are CPUs
      if (looks % 1024 == 0 && is_over && is_over())
        return true;
    }
  // [sleep]
  auto next_look = now + liveness_interval;
  const uint64_t slot = position & (ring_.shape().slots - 1);
  while (is_waiting(position)) {
    if (now >= deadline)
      return false;
    // In this order. If the bell rings after this load, we do not sleep. If it rang before, the
    // answer is there.
    const BellSeen bell{&bell_of(slot), bell_of(slot).load(std::memory_order_acquire)};
    if (!will_sleep(position, sleeps_on_its_own))
      return true;
    sleep_on({&bell, 1}, bit_of(slot), std::min(deadline, now + liveness_interval));
    now = steady_clock::now();
    if (is_over && is_waiting(position) && now >= next_look) {
      if (is_over())
        return true;
      next_look = now + liveness_interval;
    }
  }
  // [sleep]
  return true;
}

// Says so in the answer's word, unless the answer has come: then it is another word, and stays as
// it is.
bool AnswerTable::will_sleep(uint64_t position, uint32_t how) {
  std::atomic<uint32_t> &word_now = control(position).word;
  uint32_t seen = word_now.load(std::memory_order_acquire);
  do
    if ((seen & ~sleeps_mask) != word(position, AnswerState::waiting))
      return false;
  while (!word_now.compare_exchange_weak(seen, seen | how, std::memory_order_acq_rel));
  return true;
}

bool AnswerTable::will_sleep_on_any(uint64_t position, uint32_t number) {
  std::atomic_ref(control(position).any_bell).store(number % any_bells, std::memory_order_relaxed);
  return will_sleep(position, sleeps_on_any);
}
// [wait]

// [collect]
AnswerTable::Answer AnswerTable::answer(uint64_t position) const {
  AnswerControl &its = control(position);
  const uint64_t slot = position & (ring_.shape().slots - 1);
  // Read once: others can change them between a check and a use.
  const Outcome outcome = std::atomic_ref(its.outcome).load(std::memory_order_relaxed);
  const uint32_t said = std::atomic_ref(its.length).load(std::memory_order_relaxed);
  const uint32_t length = said & ~long_answer;
  if (outcome != Outcome::response && outcome != Outcome::refused)
    return {.outcome = outcome, .bytes = {}};
  const std::span<const std::byte> from =
      (said & long_answer) != 0
          ? std::span<const std::byte>(data_).subspan(slot * largest_, largest_)
          : std::span<const std::byte>(slots_).subspan(slot * ring_.shape().slot_size +
                                                       sizeof(rdmacommon::SlotHeader));
  return {.outcome = outcome, .bytes = from.first(std::min<size_t>(length, from.size()))};
}

void AnswerTable::drop(const SlotRun &run) {
  if (!change(run.position, AnswerState::waiting, AnswerState::unwanted) &&
      is_answered(run.position))
    ring_.give_back(run);
}
// [collect]

// [deliver]
bool AnswerTable::deliver(uint64_t position, Outcome outcome, uint32_t length, bool is_long) {
  AnswerControl &its = control(position);
  its.outcome = outcome;
  its.length = length | (is_long ? long_answer : 0);
  uint32_t sleeps = 0;
  if (!change(position, AnswerState::waiting, AnswerState::answered, &sleeps))
    return false;
  const auto slot = static_cast<uint32_t>(position & (ring_.shape().slots - 1));
  if ((sleeps & sleeps_on_its_own) != 0)
    will_ring(any_bells + slot / 32, bit_of(slot));
  if ((sleeps & sleeps_on_any) != 0)
    will_ring(std::atomic_ref(its.any_bell).load(std::memory_order_relaxed) % any_bells, every_bit);
  return true;
}

void AnswerTable::will_ring(uint32_t bell, uint32_t bits) {
  if (to_ring_.empty() || to_ring_.back().bell != bell)
    to_ring_.push_back({.bell = bell, .bits = 0});
  to_ring_.back().bits |= bits;
}

// Once all that has come has been delivered. A group of answers lies in consecutive slots, so it
// wakes all its callers by one system call for 32 slots. And a caller that is woken finds
// everything that is there for it.
AnswerTable::Wakes AnswerTable::wake() {
  Wakes wakes{.calls = static_cast<uint32_t>(to_ring_.size()), .callers = 0};
  for (const Ring &one : to_ring_)
    wakes.callers += ring(bells_[one.bell], one.bits);
  to_ring_.clear();
  return wakes;
}
// [deliver]

void AnswerTable::abandon(uint64_t position) { // whatever the caller had its word say
  control(position).word.store(word(position, AnswerState::unwanted));
}

} // namespace rdmashared

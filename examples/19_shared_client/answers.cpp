#include "answers.hpp"

#include <rdmacommon/check.hpp>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <string>

namespace shared_client {
namespace {

using rdmacommon::Error, rdmacommon::SlotRing, rdmacommon::SlotRun, rdmacommon::Where;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint32_t asleep = 8;           // beside the state, of which there are less than 8
constexpr milliseconds look_around(100); // how often a sleeper asks whether the sender lives

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
  case Outcome::late:
    return "its answer was not collected in time, and others needed the slots";
  }
  return "nobody knows";
}

// [layout]
struct Answers::Layout {
  uint64_t controls, slots, data, length; // from the appendix's beginning, in bytes

  Layout(uint32_t count, uint32_t slot_size, uint32_t largest) {
    controls = 64; // behind the LaneStatus
    slots = pages(controls + uint64_t{count} * sizeof(AnswerControl));
    data = slots + pages(uint64_t{count} * slot_size);
    length = data + pages(uint64_t{count} * largest);
  }
};
// [layout]

uint64_t Answers::bytes_for(const Shape &shape) {
  return Layout(shape.slots, shape.slot_size, shape.largest).length;
}

Answers::Answers(SlotRing &ring, uint32_t largest) : ring_(ring), largest_(largest) {
  attach(Layout(ring.shape().slots, ring.shape().slot_size, largest));
  status_->largest = largest;
}

Answers::Answers(SlotRing &ring) : ring_(ring), largest_(0) {
  attach(Layout(ring.shape().slots, ring.shape().slot_size, 0));
  largest_ = status_->largest; // copied, then checked, then used
  attach(Layout(ring.shape().slots, ring.shape().slot_size, largest_));
}

void Answers::attach(const Layout &layout) {
  static_assert(sizeof(AnswerControl) == 16 && sizeof(LaneStatus) <= 64);
  const std::span<std::byte> all = ring_.appendix();
  if (all.size() < layout.length)
    throw Error("the shared memory", "it is too small for the answers", Where::here());
  status_ = std::launder(reinterpret_cast<LaneStatus *>(all.data()));
  controls_ = std::launder(reinterpret_cast<AnswerControl *>(all.data() + layout.controls));
  slots_ = all.subspan(layout.slots, size_t{ring_.shape().slots} * ring_.shape().slot_size);
  data_ = all.subspan(layout.data, size_t{ring_.shape().slots} * largest_);
}

// [change]
// From one state to another, if it is this position's still. A slot that has begun a new lap is another request's.
bool Answers::change(uint64_t position, AnswerState from, AnswerState to, bool *was_asleep) {
  std::atomic<uint32_t> &word_now = control(position).word;
  uint32_t seen = word_now.load(std::memory_order_acquire);
  do
    if ((seen & ~asleep) != word(position, from))
      return false;
  while (!word_now.compare_exchange_weak(seen, word(position, to), std::memory_order_acq_rel));
  if (was_asleep)
    *was_asleep = (seen & asleep) != 0;
  return true;
}
// [change]

void Answers::expect(uint64_t position, AnswerState waiting_or_unwanted) {
  // Nobody else looks at it before the request is published.
  control(position).word.store(word(position, waiting_or_unwanted), std::memory_order_relaxed);
}

bool Answers::is_waiting(uint64_t position) const {
  const uint32_t now = control(position).word.load(std::memory_order_acquire);
  return (now & ~asleep) == word(position, AnswerState::waiting);
}

// [wait]
bool Answers::wait(uint64_t position, milliseconds limit, Waiting how,
                   const std::function<bool()> &is_over) {
  if (!is_waiting(position))
    return true;
  auto now = steady_clock::now(); // no oftener than needed: it can be a system call
  const auto deadline = now + limit;
  const auto spin_end = how == Waiting::poll   ? deadline
                        : how == Waiting::spin ? std::min(now + spin_time, deadline)
                                               : now;
  for (uint32_t looks = 1; now < spin_end && is_waiting(position);
       ++looks, now = steady_clock::now())
    if (how == Waiting::poll) {
      sched_yield(); // there may be more who look than CPUs
      if (looks % 1024 == 0 && is_over && is_over())
        return true;
    }
  // [sleep]
  std::atomic<uint32_t> &word_now = control(position).word;
  while (is_waiting(position)) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - now);
    if (left.count() <= 0)
      return false;
    // Say that we sleep, unless the answer has come: then it is another word, and stays as it is.
    uint32_t seen = word(position, AnswerState::waiting);
    if (!word_now.compare_exchange_strong(seen, seen | asleep) && !is_waiting(position))
      return true;
    const timespec nap{
        .tv_sec = 0,
        .tv_nsec = std::min<long>(std::min(left, look_around).count() * 1'000'000, 999'999'999)};
    // Sleeps only if the word is still what we have made it: a wake in between is not lost.
    const long rc = syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word_now), FUTEX_WAIT,
                            word(position, AnswerState::waiting) | asleep, &nap, nullptr, 0);
    if (rc < 0 && errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
      rdmacommon::throw_errno(errno, "futex");
    if (!is_waiting(position) || (rc < 0 && errno == ETIMEDOUT && is_over && is_over()))
      return true;
    now = steady_clock::now();
  }
  // [sleep]
  return true;
}
// [wait]

// [collect]
bool Answers::begin_to_collect(uint64_t position) {
  return change(position, AnswerState::answered, AnswerState::collecting);
}

Answers::Answer Answers::answer(uint64_t position) const {
  AnswerControl &its = control(position);
  const uint64_t slot = position & (ring_.shape().slots - 1);
  // Read once: others can change them between a check and a use.
  const Outcome outcome = std::atomic_ref(its.outcome).load(std::memory_order_relaxed);
  const uint32_t length = std::atomic_ref(its.length).load(std::memory_order_relaxed);
  if (outcome != Outcome::response && outcome != Outcome::refused)
    return {.outcome = outcome, .bytes = {}};
  const std::span<const std::byte> from =
      outcome == Outcome::response && largest_ > 0
          ? std::span<const std::byte>(data_).subspan(slot * largest_)
          : std::span<const std::byte>(slots_).subspan(slot * ring_.shape().slot_size +
                                                       sizeof(rdmacommon::SlotHeader));
  return {.outcome = outcome, .bytes = from.first(std::min<size_t>(length, from.size()))};
}

void Answers::done_with(const SlotRun &run) {
  ring_.give_back(run); // the word stays "collecting" until the slot's next owner sets it
}

bool Answers::drop(const SlotRun &run) {
  if (change(run.position, AnswerState::waiting, AnswerState::unwanted))
    return true;
  if (!begin_to_collect(run.position))
    return false;
  done_with(run);
  return true;
}
// [collect]

// [deliver]
bool Answers::deliver(uint64_t position, Outcome outcome, uint32_t length) {
  AnswerControl &its = control(position);
  its.outcome = outcome;
  its.length = length;
  bool was_asleep = false;
  if (!change(position, AnswerState::waiting, AnswerState::answered, &was_asleep))
    return false;
  if (was_asleep)
    sleepers_.push_back(&its.word);
  return true;
}

// Once all that has come has been delivered: whoever is woken finds everything that is there for it, and need not sleep again for
// the next answer of the same group. A caller with many requests sleeps for one of them, and the others cost nothing.
// Several threads may sleep for the same one: those that want room do, for the one in their way (Caller::wait_for_slots).
uint32_t Answers::wake() {
  long count = 0;
  for (std::atomic<uint32_t> *word : sleepers_)
    count += std::max(1L, syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAKE,
                                  INT_MAX, nullptr, nullptr, 0));
  sleepers_.clear();
  return static_cast<uint32_t>(count);
}
// [deliver]

bool Answers::expire(uint64_t position) {
  return change(position, AnswerState::answered, AnswerState::none);
}

void Answers::abandon(uint64_t position) { // whatever the caller had its word say
  control(position).word.store(word(position, AnswerState::unwanted));
}

} // namespace shared_client

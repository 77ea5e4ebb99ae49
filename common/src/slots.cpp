// SPDX-License-Identifier: MIT
// What is done in the memory of a slot ring: claim, publish, take, give back, sleep and wake.
// slot_segment.cpp makes that memory.
#include "rdmacommon/slot_ring.hpp"
#include "rdmacommon/stopwatch.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <string>

namespace rdmacommon {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds
    liveness_interval(100); // how often a worker that waits asks whether the consumer lives

[[noreturn]] void damaged() {
  throw Error("the ring", "it is damaged: a slot's word is impossible");
}

// Not FUTEX_PRIVATE_FLAG, which is for the threads of one process: the kernel finds a shared one by
// file and offset, so it may lie at another address in each process.
long futex(std::atomic<uint32_t> &word, int operation, uint32_t value, const timespec *limit) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), operation, value, limit, nullptr,
                 0);
}

// Whether it is a free slot of an older lap. Laps go round, so the half that lies behind is older.
bool is_free_before(uint64_t packed, uint32_t lap) {
  const SlotWord word = SlotWord::unpacked(packed);
  const uint32_t distance = (lap - word.lap) % SlotWord::lap_limit;
  return word.state == SlotState::free && distance > 0 && distance < SlotWord::lap_limit / 2;
}

} // namespace

uint32_t SlotRing::longest_message() const {
  const uint32_t slots = std::min(shape_.quota == 0 ? shape_.slots : shape_.quota, shape_.slots);
  const uint64_t bytes = uint64_t{std::min(slots, max_message_slots)} * shape_.slot_size;
  return static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
}

uint32_t SlotRing::slots_for(uint32_t length, Where where) const {
  if (length > longest_message())
    throw Error("a message",
                "it has " + std::to_string(length) + " bytes, and " +
                    std::to_string(longest_message()) + " fit",
                where);
  return std::max(1U, length / shape_.slot_size + (length % shape_.slot_size != 0));
}

uint32_t SlotRing::checked_count(uint64_t position, SlotWord word) const {
  const uint64_t slot = position & (shape_.slots - 1);
  if (word.count == 0 || slot + word.count > shape_.slots)
    damaged();
  return word.count;
}

bool SlotRing::is_free(uint64_t position, uint32_t count) const {
  // Acquire: what the consumer has read from these slots it has read before we write into them.
  for (uint32_t i = 0; i < count; ++i)
    if (control(position + i).word.load(std::memory_order_acquire) != free_word(position + i))
      return false;
  return true;
}

// [claim]
std::optional<SlotRing::Claim> SlotRing::try_claim(uint32_t worker, uint32_t length, Where where) {
  const uint32_t wanted = slots_for(length, where);
  if (!may_have(worker, wanted))
    return std::nullopt;
  for (uint64_t room = 0;;) { // where there is some, if slots are in the way
    uint64_t head = header_->head.load(std::memory_order_acquire);
    const uint64_t to_end = shape_.slots - (head & (shape_.slots - 1));
    const bool fits = wanted <= to_end;
    const auto count = static_cast<uint32_t>(fits ? wanted : to_end);
    if (!is_free(head, count)) {
      const SlotWord found = SlotWord::unpacked(control(head).word.load(std::memory_order_acquire));
      if (found.lap == lap(head) &&
          found.state != SlotState::free) // of this lap, but head has not been moved
        header_->head.compare_exchange_strong(head, head + checked_count(head, found));
      else if (is_newer(found.lap, head)) // passed, and given back since
        header_->head.compare_exchange_strong(head, head + 1);
      else if (header_->head.load(std::memory_order_acquire) == head && !pass(head, wanted, room))
        return std::nullopt; // there is no room
      continue;
    }
    // What does not fit before the ring's end begins anew: the rest is nobody's, and the consumer
    // passes over it.
    const SlotWord claimed{.state = fits ? SlotState::claimed : SlotState::abandoned,
                           .count = count,
                           .worker = fits ? worker : 0,
                           .lap = lap(head)};
    if (fits && !reserve(worker, count))
      return std::nullopt;
    // This is the claim. Slot and owner change together, so there is no moment in which a slot is
    // taken and nobody knows by whom. It fails if another was quicker, in this lap or in a later
    // one.
    uint64_t expected = free_word(head);
    if (!control(head).word.compare_exchange_strong(expected, claimed.packed())) {
      if (fits)
        release(worker, count);
      continue;
    }
    const uint64_t position = head;
    // If we die here, the next worker moves `head` when it finds the slot claimed, or the consumer.
    header_->head.compare_exchange_strong(head, head + count);
    if (fits)
      return Claim(*this, position, worker, count, length);
    ring_if_awaited(position);
  }
}
// [claim]

// [pass]
// Whether this is a message of the lap before that can stay where it is. The consumer must have
// taken it: it would skip the message otherwise.
bool SlotRing::can_pass(uint64_t position, SlotWord word) const {
  const uint32_t lap_before = lap(position - shape_.slots);
  return position - shape_.slots < header_->taken.load(std::memory_order_acquire) &&
         word.lap == lap_before &&
         (word.state == SlotState::ready || word.state == SlotState::passed);
}

// Where so many free slots lie side by side within one lap from the head.
std::optional<uint64_t> SlotRing::room_behind(uint64_t head, uint32_t wanted) const {
  uint32_t free = 0;
  for (uint64_t at = head; at < head + shape_.slots;) {
    if ((at & (shape_.slots - 1)) == 0)
      free = 0; // a message does not go across the ring's end
    const uint64_t word = control(at).word.load(std::memory_order_acquire);
    if (word == free_word(at)) {
      ++at;
      if (++free == wanted)
        return at - wanted;
      continue;
    }
    if (!can_pass(at, SlotWord::unpacked(word)))
      return std::nullopt;
    free = 0;
    at += checked_count(at, SlotWord::unpacked(word));
  }
  return std::nullopt;
}

// The slots at the head are not enough, or not free. Goes round them, if there is room behind them:
// a message that is held gets the new lap, and stays where it is. Free slots that are too few are
// abandoned.
// @param room where there is room, as far as the caller knows; until the head is there, nobody
//             looks again
// @return false if there is no room
bool SlotRing::pass(uint64_t head, uint32_t wanted, uint64_t &room) {
  const auto found = head < room ? room : room_behind(head, wanted);
  uint64_t seen = control(head).word.load(std::memory_order_acquire);
  SlotWord word = SlotWord::unpacked(seen);
  if (!found) // unless another was quicker
    return header_->head.load(std::memory_order_acquire) != head ||
           (word.lap == lap(head) && word.state != SlotState::free);
  room = *found;
  if (seen == free_word(head)) {
    uint32_t count = 1;
    while (count < wanted && ((head + count) & (shape_.slots - 1)) != 0 && is_free(head + count, 1))
      ++count;
    word = {.state = SlotState::abandoned, .count = count, .worker = 0, .lap = lap(head)};
  } else if (can_pass(head, word)) {
    word.state = SlotState::passed;
    word.lap = lap(head);
  } else {
    room = 0; // another was quicker: or has written nonsense there, so look again
    return true;
  }
  if (!control(head).word.compare_exchange_strong(seen, word.packed()))
    return true;
  const uint64_t position = head;
  header_->head.compare_exchange_strong(head, head + word.count);
  ring_if_awaited(position);
  return true;
}
// [pass]

// [wait-for-room]
SlotRing::Claim SlotRing::claim(uint32_t worker, uint32_t length, milliseconds limit,
                                const std::function<bool()> &is_over, Where where) {
  const auto deadline = deadline_in(limit);
  for (bool is_alone = false;;) {
    if (std::optional<Claim> claim = try_claim(worker, length, where))
      return std::move(*claim);
    // Say that we wait, then look again. The consumer frees slots, then checks whether somebody
    // waits. Both change the same word, so one of the two comes first there: either it sees us, or
    // we see the slots.
    const uint32_t seen = header_->room.fetch_or(1, std::memory_order_acq_rel) | 1;
    if (std::optional<Claim> claim = try_claim(worker, length, where))
      return std::move(*claim);
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0 || is_alone) {
      wake(1); // what woke us may have been meant for somebody who has use for it
      throw Error("the ring",
                  is_alone ? "nobody takes from it any more"
                  : may_have(worker, slots_for(length, where))
                      ? "it stays full"
                      : "this worker has its quota of slots, and gives none back",
                  where);
    }
    const timespec nap{.tv_sec = 0,
                       .tv_nsec = std::min<long>(
                           std::min(left, liveness_interval).count() * 1'000'000, 999'999'999)};
    // Sleeps only if the word is still what it was: a wake in between is not lost.
    if (futex(header_->room, FUTEX_WAIT, seen, &nap) < 0) {
      if (errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
        throw_errno(errno, "futex", where);
      is_alone = errno == ETIMEDOUT && is_over && is_over();
    }
  }
}
// [wait-for-room]

SlotRing::Claim::Claim(SlotRing &ring, uint64_t position, uint32_t worker, uint32_t count,
                       uint32_t length)
    : ring_(&ring), position_(position),
      word_(SlotWord{
          .state = SlotState::claimed, .count = count, .worker = worker, .lap = ring.lap(position)}
                .packed()),
      data_(ring.data_ + (position & (ring.shape_.slots - 1)) * ring.shape_.slot_size, length) {
  ring.control(position).length = length;
  std::atomic_ref(ring.control(position).lap)
      .store(ring.lap(position), std::memory_order_relaxed); // is_of() may still look
}

SlotRing::Claim::Claim(Claim &&other) noexcept
    : ring_(std::exchange(other.ring_, nullptr)), position_(other.position_), word_(other.word_),
      data_(other.data_) {}

// [publish]
bool SlotRing::Claim::publish() {
  SlotRing &ring = *std::exchange(ring_, nullptr);
  SlotWord ready = SlotWord::unpacked(word_);
  ready.state = SlotState::ready;
  // Release: the consumer that sees "ready" sees the message. By compare-and-swap, since the slots
  // may not be ours any more: then the word is another's, or of another lap, and stays as it is.
  // Sequentially consistent because of the look at `awaited` that follows, and must not be done
  // before it.
  uint64_t expected = word_;
  if (!ring.control(position_).word.compare_exchange_strong(expected, ready.packed(),
                                                            std::memory_order_seq_cst))
    return false;
  ring.ring_if_awaited(position_);
  return true;
}
// [publish]

SlotRing::Claim::~Claim() {
  if (ring_ == nullptr)
    return;
  SlotWord abandoned = SlotWord::unpacked(word_);
  abandoned.state = SlotState::abandoned;
  uint64_t expected = word_;
  if (ring_->control(position_).word.compare_exchange_strong(expected, abandoned.packed()))
    ring_->ring_if_awaited(position_);
}

// [ring]
// Exactly one message is the one that the consumer sleeps for, so exactly one worker rings, and
// once.
void SlotRing::ring_if_awaited(uint64_t position) {
  if (header_->awaited.load(std::memory_order_seq_cst) != position)
    return;
  const uint64_t one = 1;
  // EAGAIN: the count is at its end, so the doorbell has rung.
  if (write(doorbell_, &one, sizeof one) >= 0)
    rings_.fetch_add(1, std::memory_order_relaxed);
}
// [ring]

// [arm]
bool SlotRing::arm() {
  // Say what we sleep for, then check whether it is there. A worker publishes, then looks what we
  // sleep for. With all four sequentially consistent, at least one of us sees what the other has
  // done. With anything less, the store may wait in this CPU's store buffer while the load is done,
  // and both look too early.
  header_->awaited.store(next_, std::memory_order_seq_cst);
  const SlotWord word = SlotWord::unpacked(control(next_).word.load(std::memory_order_seq_cst));
  if (word.lap != lap(next_))
    return !is_newer(word.lap, next_);
  return word.state == SlotState::free || word.state == SlotState::claimed;
}

void SlotRing::disarm(bool also_doorbell) {
  header_->awaited.store(nothing, std::memory_order_relaxed); // a ring too many does no harm
  uint64_t count;
  if (also_doorbell && read(doorbell_, &count, sizeof count) < 0 && errno != EAGAIN)
    throw_errno(errno, "read of the doorbell");
}
// [arm]

void SlotRing::Free::operator()(Noted *notes) const {
  std::free(notes);
}

// [take]
SlotRun SlotRing::take(uint32_t limit) {
  if (!notes_) { // of a large ring, too, only what is used costs memory: nobody writes to the rest
    notes_.reset(static_cast<Noted *>(std::calloc(shape_.slots, sizeof(Noted))));
    check_ptr(notes_.get(), "calloc");
  }
  SlotRun run;
  uint64_t last = next_; // where the last message begins that we have seen
  for (;;) {
    const uint64_t position = next_ + run.count;
    // Acquire: with "ready" comes the message.
    const SlotWord word =
        SlotWord::unpacked(control(position).word.load(std::memory_order_acquire));
    const bool is_ready = word.state == SlotState::ready,
               is_newer = this->is_newer(word.lap, position);
    if (!is_newer && (word.lap != lap(position) || word.state == SlotState::free ||
                      word.state == SlotState::claimed))
      break;
    const uint32_t count = is_newer ? 1 : checked_count(position, word);
    if (run.count > 0 && (is_newer || !is_ready || run.count + count > limit))
      break;
    if (is_newer || word.state == SlotState::passed) { // skipped: its holder gives it back
      uint64_t head = position;
      header_->head.compare_exchange_strong(head, position + count);
      next_ += count;
      continue;
    }
    // A worker can change both at any moment. So they are read here, and message() reads these
    // notes.
    notes_[position & (shape_.slots - 1)] = {
        .length = std::atomic_ref(control(position).length).load(std::memory_order_relaxed),
        .worker = static_cast<uint16_t>(word.worker),
        .slots = static_cast<uint16_t>(count)};
    last = position;
    run.count += count;
    const bool is_end = ((position + count) & (shape_.slots - 1)) == 0;
    if (is_ready && !is_end)
      continue;
    if (is_ready)
      break;
    // Abandoned, and nothing before it: passed over.
    uint64_t head = position;
    header_->head.compare_exchange_strong(head, position + count);
    next_ += count;
    give_back({.position = position,
               .first = static_cast<uint32_t>(position & (shape_.slots - 1)),
               .count = count});
    run.count = 0;
  }
  header_->taken.store(next_ + run.count, std::memory_order_release);
  if (run.count == 0)
    return run;
  // Its worker may have died, or may sleep, before it moved the head over its message; then there
  // is none behind it.
  uint64_t head = last;
  if (header_->head.load(std::memory_order_acquire) == last)
    header_->head.compare_exchange_strong(head, next_ + run.count);
  run.position = next_;
  run.first = static_cast<uint32_t>(next_ & (shape_.slots - 1));
  next_ += run.count;
  return run;
}
// [take]

SlotMessage SlotRing::message(const SlotRun &run, uint32_t &at) {
  const uint32_t slot = run.first + at;
  const Noted &its = notes_[slot];
  if (its.slots == 0 || its.slots > run.count - at ||
      its.length > uint64_t{its.slots} * shape_.slot_size)
    damaged();
  at += its.slots;
  return {.slot = slot,
          .slots = its.slots,
          .worker = its.worker,
          .data = {data_ + size_t{slot} * shape_.slot_size, its.length}};
}

// [give-back]
void SlotRing::give_back(const SlotRun &run) {
  uint32_t messages = 0;
  for (uint32_t i = 0; i < run.count; ++messages)
    i += give_back(run.position + i, run.count - i);
  // Changed even though it stays the same: that puts us before or after the worker that says it
  // waits.
  if ((header_->room.fetch_or(0, std::memory_order_acq_rel) & 1) != 0)
    wake(std::max(1U, messages)); // where so many have left, about as many have room
}

// Whether the message that was claimed at this position still has its slots. If it has not,
// somebody else has given them back, and they may have been claimed since.
bool SlotRing::is_of(uint64_t position, SlotWord word) const {
  if (word.state == SlotState::passed) // its word has got another lap; its own is noted beside it
    return std::atomic_ref(control(position).lap).load(std::memory_order_relaxed) == lap(position);
  return word.state != SlotState::free && word.lap == lap(position);
}

// One message. Its first slot comes last: if we die before that, the whole message can be given
// back again.
// @return how many slots have been dealt with
uint32_t SlotRing::give_back(uint64_t position, uint32_t max_count) {
  std::atomic<uint64_t> &first = control(position).word;
  uint64_t seen = first.load(std::memory_order_acquire);
  for (;;) {
    const SlotWord word = SlotWord::unpacked(seen);
    if (!is_of(position, word))
      return 1; // each slot is freed once, however often its run comes back
    const auto to_end = static_cast<uint32_t>(shape_.slots - (position & (shape_.slots - 1)));
    const uint32_t count = std::clamp(word.count, 1U, to_end); // a worker can have changed it
    // The lap in which they can be claimed next: the ring has gone round them until now.
    const uint32_t next = (word.lap + 1) % SlotWord::lap_limit;
    const uint64_t is_free =
        SlotWord{.state = SlotState::free, .count = 0, .worker = 0, .lap = next}.packed();
    for (uint32_t i = 1; i < count; ++i) {
      std::atomic<uint64_t> &word_of = control(position + i).word;
      uint64_t old = word_of.load(std::memory_order_relaxed);
      // Another may give this message back at the same time, also for an older lap. The newer lap
      // stays.
      while (is_free_before(old, next) &&
             !word_of.compare_exchange_weak(old, is_free, std::memory_order_release,
                                            std::memory_order_relaxed))
        ;
    }
    // Release: what we have read here we have read before anybody writes here.
    if (first.compare_exchange_strong(seen, is_free, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      release(word.worker, word.count);
      return std::min(count, max_count);
    }
  } // it has been passed meanwhile, so it becomes free for another lap
}
// [give-back]
bool SlotRing::holds(uint64_t position) const {
  const SlotWord word = SlotWord::unpacked(control(position).word.load(std::memory_order_acquire));
  return is_of(position, word) &&
         (word.state == SlotState::ready || word.state == SlotState::passed);
}
// [wake]
void SlotRing::wake(uint32_t count) {
  std::atomic<uint32_t> &room = header_->room;
  uint32_t seen = room.load(std::memory_order_relaxed);
  // Counts one more wake and clears the bit, so a worker that is about to sleep on the old value
  // does not.
  while (!room.compare_exchange_weak(seen, (seen | 1) + 1, std::memory_order_acq_rel))
    ;
  const long woken =
      futex(room, FUTEX_WAKE, static_cast<uint32_t>(std::min<uint32_t>(count, INT_MAX)), nullptr);
  if (woken <= 0)
    return;
  wakes_.fetch_add(static_cast<uint64_t>(woken), std::memory_order_relaxed);
  if (woken == static_cast<long>(count)) // there may be more of them
    room.fetch_or(1, std::memory_order_acq_rel);
}
// [wake]

// [reclaim]
uint32_t SlotRing::reclaim(uint32_t worker) {
  uint32_t slots = 0;
  // At the head it may have claimed, and not moved the head. The other limit is for a head that is
  // nonsense.
  for (uint64_t position = next_;
       position <= head() && position - next_ < 2 * uint64_t{shape_.slots};) {
    SlotControl &its = control(position);
    uint64_t seen = its.word.load(std::memory_order_acquire);
    const SlotWord word = SlotWord::unpacked(seen);
    if (is_newer(word.lap, position)) { // passed, and given back since
      ++position;
      continue;
    }
    if (word.lap != lap(position) || word.state == SlotState::free)
      break; // nobody has claimed anything from here on
    const uint32_t count = checked_count(position, word);
    if (word.worker == worker && word.state == SlotState::claimed) {
      SlotWord abandoned = word;
      abandoned.state = SlotState::abandoned;
      if (its.word.compare_exchange_strong(seen, abandoned.packed()))
        slots += count;
    }
    position += count;
  }
  if (shape_.quota != 0)
    recount(worker);
  wake(INT_MAX); // it may have been woken for slots that are free, and died before it claimed them
  return slots;
}

// It may have died between a change of its slots and the count of it. Each message has a word that
// is not free, with its worker.
void SlotRing::recount(uint32_t worker) {
  const uint64_t at = head(); // the worker may have claimed here, and not moved the head
  const uint64_t used = at < shape_.slots ? at + 1 : shape_.slots;
  uint32_t slots = 0;
  for (uint64_t slot = 0; slot < used; ++slot) {
    const SlotWord word = SlotWord::unpacked(control(slot).word.load(std::memory_order_acquire));
    if (word.state != SlotState::free && word.worker == worker)
      slots += word.count;
  }
  held_[worker].slots.store(static_cast<int32_t>(slots), std::memory_order_relaxed);
}
// [reclaim]

} // namespace rdmacommon

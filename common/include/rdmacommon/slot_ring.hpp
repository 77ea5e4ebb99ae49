// SPDX-License-Identifier: MIT
/// @file
/// A ring of slots in shared memory: many workers, of many processes, put messages into it; one
/// consumer takes them in runs of consecutive slots.
///
/// Written out in lesson 18_slot_ring. For the processes that may attach, and for their death, see
/// ring_host.hpp.
#pragma once

#include "rdmacommon/check.hpp"
#include "rdmacommon/processes.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace rdmacommon {

// [shape]
/// How large a ring is. The process that makes the ring chooses it.
struct RingShape {
  uint32_t slots = 1024;    ///< A power of two, at most SlotRing::max_slots.
  uint32_t slot_size = 256; ///< In bytes, a multiple of 64, at most 1 MiB.
  uint32_t quota = 0;       ///< Slots that a worker can have at a time; 0: all.
  uint64_t appendix =
      0; ///< Bytes behind the slots' data, for whatever the ring's users agree on; at most 16 GiB.

  bool operator==(const RingShape &) const = default; ///< Whether both are the same.
};
// [shape]

// [control]
/// The state of a slot. A worker makes it claimed, and then ready; giving it back makes it free.
/// Abandoned: it was claimed and will not become ready, or nobody can use it in this lap. Passed: a
/// message that was not given back when the ring came round to it, and that the workers left where
/// it is.
enum class SlotState : uint32_t { free, claimed, ready, abandoned, passed };

/// State and owner of a slot, in one word, which one instruction can change.
struct SlotWord {
  SlotState state; ///< bits 0-2
  uint32_t count;  ///< bits 3-18: slots of the message that begins here; 0 in a free slot
  uint32_t worker; ///< bits 19-34: who claimed it; 0 is nobody
  /// bits 35-63: the generation: how many times the ring had been gone round, modulo lap_limit. Of
  /// a passed message, when it was passed last
  uint32_t lap;

  static constexpr uint32_t lap_limit = 1U << 29; ///< `lap` is less than this.

  /// As one number.
  uint64_t packed() const {
    return uint64_t{lap} << 35 | uint64_t{worker} << 19 | count << 3 | static_cast<uint32_t>(state);
  }
  /// From one number.
  static SlotWord unpacked(uint64_t word) {
    return {.state = static_cast<SlotState>(word & 0x7),
            .count = static_cast<uint32_t>(word >> 3 & 0xffff),
            .worker = static_cast<uint32_t>(word >> 19 & 0xffff),
            .lap = static_cast<uint32_t>(word >> 35)};
  }
};

/// Of each slot. Of a message's slots, only the first one's says anything; the others stay free.
struct SlotControl {
  std::atomic<uint64_t> word; ///< A SlotWord.
  uint32_t length; ///< Of the message, in bytes. Valid as the data are: once the word says ready.
  uint32_t lap;    ///< In which the message was claimed. Valid once the word says ready, or passed.
};
// [control]

// [header]
/// Where everything is. There are no addresses in it: the segment lies at another one in every
/// process.
struct RingLayout {
  std::array<char, 8> magic; ///< "slotring"
  uint32_t version;          ///< Of all that is in the segment.
  uint32_t size;             ///< Of the RingHeader.
  RingShape shape;           ///< Of slots and their data.
  uint64_t controls; ///< Where the first SlotControl is, in bytes from the segment's beginning.
  uint64_t held;     ///< Where the counters are of the slots that each worker has.
  uint64_t data;     ///< Where the first slot's data are.
  uint64_t appendix; ///< Where the appendix begins: on a page of its own.
  uint64_t length;   ///< Of the whole segment.

  bool operator==(const RingLayout &) const = default; ///< Whether all of it is the same.
};

/// What the segment begins with.
struct RingHeader {
  RingLayout layout; ///< Never changes.

  // Each on its own cache line: a write to one must not slow down the readers of the others.
  alignas(64) std::atomic<uint64_t> head; ///< The position that is claimed next.
  alignas(64) std::atomic<
      uint64_t> awaited; ///< The one that the consumer sleeps for, or SlotRing::nothing.
  alignas(
      64) std::atomic<uint32_t> room; ///< Bit 0: somebody waits for slots. The rest counts wakes.
  alignas(64) std::atomic<uint64_t> taken; ///< The position that the consumer takes next.
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(SlotControl) == 16 &&
              sizeof(RingHeader) == 384);
// [header]

/// How many slots a worker has. On a cache line of its own, since the worker writes it with each
/// message.
struct alignas(64) SlotsHeld {
  std::atomic<int32_t> slots; ///< Counted only if the ring has a quota.
};

/// A run of consecutive slots that the consumer has taken.
struct SlotRun {
  uint64_t position = 0; ///< Of its first slot, counted over all laps.
  uint32_t first = 0;    ///< Its first slot.
  uint32_t count = 0;    ///< How many; 0: nothing was ready.
};

/// One message of a run, where it lies.
struct SlotMessage {
  uint32_t slot;   ///< Its first slot.
  uint32_t slots;  ///< How many it takes.
  uint32_t worker; ///< Whose it is.
  /// Its bytes, in shared memory. The worker should not change them any more, but can: copy, then
  /// check, then use.
  std::span<std::byte> data;
};

/// The ring, as one process has it. A *position* counts slots over all laps: position p is slot p %
/// slots, in lap p / slots.
///
/// Workers call claim() and try_claim(), from any number of threads and processes; give_back() is
/// for the owner of the run. The rest that is not const is the consumer's: one thread of one
/// process. Neither a Claim nor this object may be used in a child that was forked after it was
/// made: the mapping is not inherited. The child attaches for itself.
class SlotRing {
public:
  static constexpr uint32_t max_slots = 1 << 24;        ///< So that 24 bits can name each.
  static constexpr uint32_t longest_run = 255;          ///< So that 8 bits can count it.
  static constexpr uint32_t max_message_slots = 0xffff; ///< Slots: so that 16 bits can count them.
  static constexpr uint32_t max_workers =
      0xfffe; ///< The number of a worker that joins is 1 to this.
  static constexpr uint32_t own_worker =
      0xffff; ///< The one for threads of the process that owns the ring.
  static constexpr uint64_t nothing =
      ~uint64_t{0}; ///< Of RingHeader::awaited: the consumer is awake.

  /// Slots that are claimed: theirs until publish(), or until this object goes, which gives them
  /// up.
  class Claim {
  public:
    Claim(Claim &&other) noexcept; ///< The slots are this one's then.
    Claim &operator=(Claim &&) = delete;
    ~Claim(); ///< Gives the slots up, unless publish() has been called.

    /// Where the message goes. Its length is as it was claimed.
    std::span<std::byte> data() const { return data_; }
    uint64_t position() const { return position_; } ///< Of its first slot.

    /// Makes the message ready, and wakes the consumer if that sleeps for it. To be called once.
    /// @return false if the slots are not this worker's any more; nothing has been done then
    [[nodiscard]] bool publish();

  private:
    friend class SlotRing;
    Claim(SlotRing &ring, uint64_t position, uint32_t worker, uint32_t count, uint32_t length);

    SlotRing *ring_; // null once it is published
    uint64_t position_;
    uint64_t word_; // of its first slot, while that is claimed
    std::span<std::byte> data_;
  };

  /// Makes the memory of a new ring.
  /// @throws Error if the shape is not one, or there is no room
  static File make(const RingShape &shape, Where where = Where::here());

  /// Attaches to a ring, and checks that it is one.
  /// @param memory   from make(), in this process or another
  /// @param doorbell an eventfd that wakes the consumer; stays the caller's, and must live as long
  ///                 as this object
  /// @throws Error if it is none, or one of another version
  SlotRing(int memory, int doorbell);
  ~SlotRing(); ///< Claims must be gone by then.
  SlotRing(const SlotRing &) = delete;
  SlotRing &operator=(const SlotRing &) = delete;

  const RingShape &shape() const { return shape_; } ///< As it was when this process attached.
  /// The longest message, in bytes: as long as the ring or the quota, at most max_message_slots
  /// slots, less than 4 GiB. It needs all of its slots free at a time, so beside others that keep
  /// the ring full a long message may wait for long.
  uint32_t longest_message() const;
  /// All slots' data, from slot 0 on: what an RDMA sender registers.
  std::span<std::byte> data() const { return {data_, size_t{shape_.slots} * shape_.slot_size}; }

  /// What lies behind the data, zeros in the beginning. Its meaning, and who writes what in it and
  /// when, is up to the ring's users; empty if the shape has none.
  std::span<std::byte> appendix() const { return {appendix_, shape_.appendix}; }

  /// The position that is claimed next. For statistics: it is old when it is returned.
  uint64_t head() const { return header_->head.load(std::memory_order_acquire); }

  /// Claims the slots for a message of `length` bytes; 0 takes one slot as well.
  /// @param worker who: the slots come back if that worker is given up, and count for its quota
  ///               until they are given back
  /// @return none if there is no room now, or if the worker has its quota
  /// @throws Error if the message is too long, or the ring is damaged
  std::optional<Claim> try_claim(uint32_t worker, uint32_t length, Where where = Where::here());

  /// The same, waiting for room.
  /// @param is_over asked now and then; true ends the wait. It is for the consumer's death, which
  ///                frees no slots
  /// @throws Error also if there is no room within `limit`, or the consumer is gone. A worker that
  ///         has its quota waits for its own slots: it should give some back instead
  Claim claim(uint32_t worker, uint32_t length, std::chrono::milliseconds limit,
              const std::function<bool()> &is_over = {}, Where where = Where::here());

  /// Takes what is ready now, as one run: no more than `limit` slots, and never across the ring's
  /// end. Its cost follows the slots that are taken, not those of the ring.
  /// @param limit 1 to longest_run; a message that is longer makes a run by itself, also one of
  ///              more than longest_run
  /// @throws Error if what the workers have written there cannot be
  SlotRun take(uint32_t limit = longest_run);

  /// One message of a run after the other, as take() has found it: what a worker changes of it
  /// since is not seen.
  /// @param run from take(), and not given back yet
  /// @param at  0 for the first; moved on to the next. At run.count there is none any more
  /// @throws Error if what the workers have written there cannot be
  SlotMessage message(const SlotRun &run, uint32_t &at);

  /// Makes the slots of a run free, and wakes who waits for them. Runs may be given back in any
  /// order, by any process and thread that has attached: by the one that the consumer has left the
  /// run to, one at a time. A run may be a part of one that was taken, of whole messages. If that
  /// process dies in here, another may give the same run back again, even if it has been given back
  /// whole: what is free already, or has been claimed since, stays as it is.
  void give_back(const SlotRun &run);

  /// Whether a message's slots have not been given back yet.
  /// @param position of its first slot, as it was published
  bool holds(uint64_t position) const;

  /// Says that the consumer is about to sleep: from here on the next message rings the doorbell.
  /// @return false if that message is there already: then there is nothing to sleep for
  bool arm();
  /// After the sleep, and after an arm() that returned false: takes back what arm() said, and the
  /// doorbell's count.
  /// @param also_doorbell false if another ring with the same doorbell takes the count back
  void disarm(bool also_doorbell = true);

  /// Gives up what a worker has claimed and not published. Its process must have ended, or must not
  /// write any more: it cannot publish, but while it has the memory mapped, it can write to slots
  /// that are another's by then.
  /// @return how many slots
  uint32_t reclaim(uint32_t worker);

  uint64_t rings() const {
    return rings_.load(std::memory_order_relaxed);
  } ///< Of this object: doorbells rung.
  uint64_t wakes() const {
    return wakes_.load(std::memory_order_relaxed);
  } ///< Of this object: workers woken.

private:
  SlotControl &control(uint64_t position) const { return controls_[position & (shape_.slots - 1)]; }
  uint32_t lap(uint64_t position) const {
    return static_cast<uint32_t>(position >> shift_) % SlotWord::lap_limit;
  }
  uint64_t free_word(uint64_t position) const {
    return SlotWord{.state = SlotState::free, .count = 0, .worker = 0, .lap = lap(position)}
        .packed();
  }
  // A message's SlotControl, as take() has read it.
  struct Noted {
    uint32_t length;
    uint16_t worker, slots;
  };
  struct Free {
    void operator()(Noted *notes) const;
  };
  uint32_t slots_for(uint32_t length, Where where) const;
  bool is_in_quota(int64_t slots) const { return shape_.quota == 0 || slots <= shape_.quota; }
  bool may_have(uint32_t worker, uint32_t slots) const {
    return is_in_quota(int64_t{held_[worker].slots.load(std::memory_order_relaxed)} + slots);
  }
  // Counts slots for the worker's quota just before they are claimed. So threads that claim at the
  // same time do not exceed it.
  bool reserve(uint32_t worker, uint32_t slots) {
    if (shape_.quota == 0)
      return true;
    for (int32_t now = held_[worker].slots.load(std::memory_order_relaxed);
         is_in_quota(int64_t{now} + slots);)
      if (held_[worker].slots.compare_exchange_weak(now, now + static_cast<int32_t>(slots),
                                                    std::memory_order_relaxed))
        return true;
    return false;
  }
  void release(uint32_t worker, uint32_t slots) {
    if (shape_.quota != 0)
      held_[worker].slots.fetch_sub(static_cast<int32_t>(slots), std::memory_order_relaxed);
  }
  bool is_free(uint64_t position, uint32_t count) const;
  // More than one lap ahead is nobody, unless a worker has written nonsense there.
  bool is_newer(uint32_t lap, uint64_t position) const {
    return lap == (this->lap(position) + 1) % SlotWord::lap_limit;
  }
  bool can_pass(uint64_t position, SlotWord word) const;
  std::optional<uint64_t> room_behind(uint64_t head, uint32_t wanted) const;
  bool pass(uint64_t head, uint32_t wanted, uint64_t &room);
  bool is_of(uint64_t position, SlotWord word) const;
  uint32_t give_back(uint64_t position, uint32_t max_count);
  void recount(uint32_t worker);
  uint32_t checked_count(uint64_t position, SlotWord word) const;
  void ring_if_awaited(uint64_t position);
  void wake(uint32_t count);

  std::unique_ptr<SharedMemory> memory_;
  pid_t process_; // that it is mapped in
  RingShape shape_;
  unsigned shift_ = 0; // 2 to the power of it is the number of slots
  RingHeader *header_ = nullptr;
  SlotControl *controls_ = nullptr;
  SlotsHeld *held_ = nullptr; // by worker
  std::byte *data_ = nullptr, *appendix_ = nullptr;
  int doorbell_;
  uint64_t next_ = 0;                    // the consumer's
  std::unique_ptr<Noted[], Free> notes_; // the consumer's: by slot, since the first take()
  std::atomic<uint64_t> rings_{0}, wakes_{0};
};

} // namespace rdmacommon

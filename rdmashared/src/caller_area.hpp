// SPDX-License-Identifier: MIT
// Layer: ends. The worker's end: the area of this process, and what its threads share beside it.
// The threads use the area under a lock; no other process has it.
#pragma once

#include "bells.hpp"
#include "epoll_loop.hpp"
#include "members.hpp"
#include "memory.hpp"

#include "rdmashared/caller.hpp"

#include <rdmacommon/processes.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <thread>

namespace rdmashared {

// The interval at which a sleeper checks that the sender lives.
constexpr std::chrono::milliseconds liveness_interval(100);
inline const uint32_t cpus = std::max(std::thread::hardware_concurrency(), 1U);

// The implementation of a Caller and of its Pendings.
class CallerArea {
public:
  CallerArea(rdmacommon::Link link, Waiting waiting, std::chrono::milliseconds limit);

  const Area &area() const { return use_.area(); }
  const Board &board() const { return **joined_.board; }
  // True if the sender has ended. is_known_to_be_over() makes no system call, so it can notice the
  // end later.
  bool is_over() { return is_known_to_be_over() || (sender_has_gone_ = joined_.sender_has_gone()); }
  bool is_known_to_be_over() const { return board().is_over.load() != 0 || sender_has_gone_; }

  using Allocation = AreaUse::Allocation;
  uint64_t longest() const { return longest_; } // request, or response in the slots, in bytes
  static uint64_t needed(size_t bytes, const RequestOptions &options);
  // @throws Error if the sender has no such server, or no such responses
  void check(const RequestOptions &options) const {
    if (options.max_response == RequestOptions::any_length || options.server)
      check_closely(options);
  }

  // Each returns Outcome::response if the request is on its way, from `place` on.

  // Queues a request. The caller holds the lock, and calls announce() afterwards.
  Outcome add(std::span<const std::byte> bytes, const RequestOptions &options, Want want,
              Allocation &place);
  Outcome try_request(std::span<const std::byte> bytes, const RequestOptions &options, Want want,
                      Allocation &place);
  // Waits for room.
  Outcome request(std::span<const std::byte> bytes, const RequestOptions &options, Want want,
                  Clock::time_point deadline, Allocation &place);
  [[noreturn]] void fail(Outcome outcome, std::span<const std::byte> bytes,
                         const RequestOptions &options) const;

  Pending pending(const Allocation &place, const RequestOptions &options,
                  Clock::time_point deadline) {
    return {*this,    place.slot,   place.slots, place.buffer, options.waiting.value_or(waiting_),
            deadline, options.where};
  }
  // Queues an entry. The caller holds the lock, and can announce several entries together.
  void submit(uint32_t entry) {
    area().queued(submitted_++).store(entry, std::memory_order_relaxed);
  }
  void announce();
  void free(const Allocation &place) {
    use_.release(place);
    wake_those_without_room();
  }
  void wake_those_without_room();

  enum class Slept { done, late, alone };
  template <typename IsDone>
  Slept sleep_until(IsDone is_done, Clock::time_point deadline, Waiting how);
  void set_timer(Clock::time_point when);

  const pid_t process_ = getpid();
  const Waiting waiting_;
  std::array<IdlePolicy, 3> idle_policy_{IdlePolicy(Waiting::poll), IdlePolicy(Waiting::events),
                                         IdlePolicy(Waiting::adaptive)}; // by Waiting
  Joined joined_;
  const uint64_t longest_;
  std::atomic<bool> sender_has_gone_ = false;

  std::mutex mutex_; // protects the two members below; AreaUse::release() needs no lock
  AreaUse use_;
  uint32_t submitted_ = 0;

  struct Callback {
    Pending pending;
    Then then;
  };
  void check_closely(const RequestOptions &options) const;
  std::list<Callback> take_ready();
  void put_back(std::list<Callback> &ready); // for the next time, which is now
  bool is_any_ready();

  std::mutex callbacks_mutex_;
  std::list<Callback> callbacks_;
  Clock::time_point timer_at_ = Clock::time_point::max();
  rdmacommon::File epoll_, timer_; // made by the first fd()
};

template <typename IsDone>
CallerArea::Slept CallerArea::sleep_until(IsDone is_done, Clock::time_point deadline, Waiting how) {
  if (is_done())
    return Slept::done;
  IdlePolicy &idle_policy = idle_policy_.at(static_cast<size_t>(how));
  int looked = 0;
  // [look]
  // Looking pays for one process, and not for many: they would keep the CPUs from the sender.
  const int looks = how == Waiting::adaptive && board().busy.load(std::memory_order_relaxed) >= cpus
                        ? 0
                        : idle_policy.looks();
  // [look]
  for (; looked < looks && !is_done(); ++looked) {
    if (looked % 1024 == 0 && (Clock::now() >= deadline || (looked > 0 && is_over())))
      break;
    sched_yield();
  }
  idle_policy.note(looked, is_done());
  const uint32_t bit = uint32_t{1} << joined_.number % 32;
  const auto &bell = board().bells.at(joined_.number / 32);
  auto next_look = Clock::time_point::max(); // time of the next check that the sender lives
  auto why = Slept::late;
  const bool was_done = rdmashared::sleep_until(bell, area().sleeps(), is_done, [&](uint32_t seen) {
    const auto now = Clock::now();
    if (now >= next_look ? is_over() : is_known_to_be_over()) {
      why = Slept::alone;
      return is_done(); // an answer that has come before is one
    }
    if (now >= deadline)
      return false;
    if (now >= next_look || next_look == Clock::time_point::max())
      next_look = now + liveness_interval;
    sleep_on(bell, seen, bit, std::min(deadline, next_look));
    return true;
  });
  return was_done ? Slept::done : why;
}

} // namespace rdmashared

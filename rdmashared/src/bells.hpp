// SPDX-License-Identifier: MIT
// Layer: memory. How the two sides sleep, and never miss a wake. The side with news publishes it,
// and then checks whether the other side sleeps. The side that wants to sleep says so, and then
// checks for news. So at least one of the two sees the other.
//
// tests/model explores all schedules of these functions.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmashared {

// [submit]
// Called by a worker. `count` is the number of entries that it has queued so far.
// @param ring called if the sender sleeps
template <typename Ring>
void publish(std::atomic<uint32_t> &submitted, uint32_t count,
             const std::atomic<uint32_t> &is_asleep, Ring ring) {
  submitted.store(count); // sequentially consistent, as the look is
  if (is_asleep.load() != 0)
    ring();
}
// [submit]

// [sender-sleep]
// Called by the sender. Sleeps unless there are requests that it has not seen.
// @param sleep returns when a worker has rung
template <typename HasNews, typename Sleep>
void sleep_unless(std::atomic<uint32_t> &is_asleep, HasNews has_news, Sleep sleep) {
  is_asleep.store(1);
  if (!has_news())
    sleep();
  is_asleep.store(0, std::memory_order_relaxed);
}
// [sender-sleep]

// Called by a worker. Sleeps, again and again, until the worker is done.
// @param bell  changes when the other side rings
// @param sleep called with the bell's value from before the last look. Returns at once if the bell
//              has changed since; returns false if the worker gives up
// @return whether it is done
template <typename IsDone, typename Sleep>
bool sleep_until(const std::atomic<uint32_t> &bell, std::atomic<uint32_t> &sleeps, IsDone is_done,
                 Sleep sleep) {
  while (!is_done()) {
    const uint32_t seen = bell.load(std::memory_order_acquire);
    sleeps.store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst); // before the look
    if (is_done())
      return true;
    if (!sleep(seen))
      return false;
  }
  return true;
}

// Called by the other side after it has stored the worker's answer, and after a fence that is
// sequentially consistent.
// @return whether to ring
inline bool must_wake(std::atomic<uint32_t> &sleeps) {
  if (sleeps.load(std::memory_order_relaxed) == 0)
    return false;
  sleeps.store(0, std::memory_order_relaxed);
  return true;
}

} // namespace rdmashared

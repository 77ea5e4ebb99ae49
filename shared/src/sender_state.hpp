// SPDX-License-Identifier: MIT
// The state of a sender's lanes, which its threads report and any thread can read: how many are up,
// why one is not, and whether the threads go on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace rdmashared {

class SenderState {
public:
  explicit SenderState(uint32_t lanes) : lanes_(lanes) {}

  // By the threads.
  // @param before, now of the lanes of one thread, how many are up
  // @param why empty, or why one of them is not
  void note(uint32_t before, uint32_t now, std::string_view why) {
    const std::lock_guard lock(mutex_);
    if (!is_running())
      return;
    up_ += now - before;
    if (!why.empty())
      why_ = why;
    if (now != before)
      changed_.notify_all();
  }
  // A thread has ended, so all will.
  // @param why the same
  void end(std::string_view why) {
    {
      const std::lock_guard lock(mutex_);
      is_running_.store(false, std::memory_order_release);
      up_ = 0;
      if (!why.empty())
        why_ = why;
    }
    changed_.notify_all();
  }

  bool is_running() const { return is_running_.load(std::memory_order_acquire); }
  std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  // Sleeps until all are up, the threads have ended, or `limit` has passed.
  // @return how many are up, and why() at this moment
  std::pair<uint32_t, std::string> wait_until_up(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return up_ == lanes_ || !is_running(); });
    return {up_, why_};
  }

private:
  const uint32_t lanes_;
  mutable std::mutex mutex_; // of up_ and why_
  std::condition_variable changed_;
  uint32_t up_ = 0;
  std::string why_;
  std::atomic<bool> is_running_{true};
};

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Threads that run what takes long, so that the thread with the connections does not.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rdmashared {

// What it says, whatever somebody else's function has thrown.
inline std::string words_of(const std::exception_ptr &failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception &error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

// @tparam Job called without arguments; must not throw
template <typename Job> class Pool {
public:
  // @param threads 0: add() runs the job itself
  explicit Pool(uint32_t threads) : most_(threads) {
    try {
      for (uint32_t i = 0; i < threads; ++i)
        threads_.emplace_back([this] { run(); });
    } catch (...) { // the host has no more threads
      end();
      throw;
    }
  }
  ~Pool() { end(); } // what is queued is not run any more
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  // @param jobs emptied
  // @return how many threads that slept are needed for them
  size_t add(std::vector<Job> &jobs) {
    size_t woken = 0;
    if (most_ == 0)
      for (Job &job : jobs)
        job();
    else if (!jobs.empty()) {
      const std::lock_guard lock(mutex_);
      woken = std::min({jobs.size(), asleep_, most_ - running_});
      jobs_.insert(jobs_.end(), std::make_move_iterator(jobs.begin()),
                   std::make_move_iterator(jobs.end()));
    }
    if (woken > 0)
      woken == 1 ? awake_.notify_one() : awake_.notify_all();
    jobs.clear();
    return woken;
  }

  // For a thread that runs a job itself, in the place of one of the pool's threads.
  // @return false if there is no place, or if a job waits for one. Otherwise call leave()
  //         afterwards
  bool join() {
    const std::lock_guard lock(mutex_);
    const bool has_room = running_ < most_ && jobs_.empty();
    running_ += has_room;
    return has_room;
  }
  void leave() {
    bool is_awaited = false;
    {
      const std::lock_guard lock(mutex_);
      --running_;
      is_awaited = !jobs_.empty();
    }
    if (is_awaited)
      awake_.notify_one();
  }

private:
  void end() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      jobs_.clear();
    }
    awake_.notify_all();
    for (std::thread &thread : threads_)
      thread.join();
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++asleep_;
      awake_.wait(lock, [this] { return is_over_ || (!jobs_.empty() && running_ < most_); });
      --asleep_;
      if (is_over_)
        return;
      ++running_;
      {
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
      } // it goes without the lock
      lock.lock();
      --running_;
    }
  }

  const size_t most_; // jobs at a time
  std::mutex mutex_;
  std::condition_variable awake_;
  std::deque<Job> jobs_;
  size_t asleep_ = 0, running_ = 0; // threads of the pool; jobs, wherever they run
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Layer: ends. The parts of a session that can outlive it. They take the answers of handlers to the
// thread with the sessions, and limit the memory that the requests use.
#pragma once

#include "epoll_loop.hpp"

#include "rdmashared/server.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace rdmashared {

class Session;
struct Batch;
struct Received;

// Answers on their way from handlers, which run in any threads, to the thread with the sessions.
class Answers {
public:
  // Adds an answer, and rings if the thread with the sessions sleeps. Any thread can call it.
  void add(Received &answered);
  // The thread with the sessions calls the functions from here on:
  void set_thread() { thread_ = std::this_thread::get_id(); }
  bool is_this_thread() const {
    return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  void take(std::vector<Received *> &into); // @param into empty
  void close();                             // no thread takes answers any more
  // Calls before and after a sleep. @return false if there is an answer: do not sleep
  bool begin_sleep();
  void end_sleep() { is_asleep_.store(false, std::memory_order_relaxed); }
  const Event &event() const { return event_; }

private:
  std::atomic<std::thread::id> thread_;
  Event event_;
  std::atomic<bool> is_asleep_ = false;
  std::mutex mutex_;
  std::vector<Received *> answered_;
  bool is_closed_ = false;
};

// Memory that is limited: that of all sessions together, and that of one.
class Budget {
public:
  // @param loops of the sessions, which will_wait()
  explicit Budget(uint64_t bytes, std::vector<std::shared_ptr<Answers>> loops = {})
      : left_(static_cast<int64_t>(bytes)), loops_(std::move(loops)) {}
  bool has(uint64_t bytes) const { return left_ >= static_cast<int64_t>(bytes); }
  // @return false if there is not so much left
  bool take(uint64_t bytes) {
    int64_t left = left_.load();
    while (left >= static_cast<int64_t>(bytes))
      if (left_.compare_exchange_weak(left, left - static_cast<int64_t>(bytes)))
        return true;
    return false;
  }
  void give_back(uint64_t bytes) {
    left_ += static_cast<int64_t>(bytes);
    if (is_waited_for_ && is_waited_for_.exchange(false))
      for (const auto &each : loops_)
        each->event().ring();
  }
  // Called by a loop before its last look: the next give_back() wakes the loop.
  void will_wait() { is_waited_for_ = true; }
  int64_t left() const { return left_; }

private:
  std::atomic<int64_t> left_;
  std::atomic<bool> is_waited_for_ = false;
  const std::vector<std::shared_ptr<Answers>> loops_;
};

// The part of a session that its requests share. It lives as long as the last of them, so a handler
// can keep a request for longer than its connection lasts.
struct SessionState {
  Client client;
  std::shared_ptr<void> state; // the program's, for this client
  std::shared_ptr<Answers> answers;
  std::shared_ptr<Budget> total;
  Budget own;                          // beside `fixed`
  uint64_t fixed;                      // bytes of `total` that the session has as long as it lives
  Session *session = nullptr;          // the session, for its own thread; null once it is closed
  std::atomic<bool> is_closed = false; // nobody takes answers any more

  std::vector<std::byte> long_responses; // for responses of any length
  uint32_t largest;

  std::mutex mutex;           // protects `batches`
  std::list<Batch *> batches; // the unfinished batches, the newest first

  SessionState(Client whose, std::shared_ptr<Answers> to, std::shared_ptr<Budget> of_all,
               uint64_t for_all, uint64_t for_requests, uint32_t largest_response);
  ~SessionState() { total->give_back(fixed); }
  bool take(uint64_t bytes); // @return false if the budgets do not have so much
  void give_back(uint64_t bytes);
  // @param run most bytes that its requests take
  // @return false if the next run must wait. Once that may have changed, the loop is rung
  bool may_take(uint64_t run);
};

} // namespace rdmashared

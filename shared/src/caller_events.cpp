// SPDX-License-Identifier: MIT
// How a caller sleeps for many responses, and how an event loop hears of them.
#include "caller_lanes.hpp"
#include "waiting.hpp"

#include <rdmacommon/stopwatch.hpp>

#include <sched.h>

#include <algorithm>
#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Where;
using std::chrono::milliseconds, std::chrono::steady_clock;

namespace {

constexpr milliseconds liveness_interval(100); // how often a sleeper asks whether the sender lives

} // namespace

CallerLanes::~CallerLanes() {
  if (!listener_.joinable())
    return;
  is_over_ = true;
  ring(lanes_.front().answers.any_bell(bell_), every_bit);
  listener_.join();
}

std::vector<BellSeen> CallerLanes::bells() const {
  std::vector<BellSeen> all;
  for (const CallerLane &lane : lanes_) {
    std::atomic<uint32_t> &bell = lane.answers.any_bell(bell_);
    all.push_back({&bell, bell.load(std::memory_order_acquire)});
  }
  return all;
}

// By lane: whether its sender has gone. A system call for each.
std::vector<bool> CallerLanes::orphans() const {
  std::vector<bool> all;
  for (const CallerLane &lane : lanes_)
    all.push_back(lane.is_over && lane.is_over());
  return all;
}

// [wait-connected]
bool CallerLanes::wait_connected(milliseconds limit, std::optional<uint32_t> server, Where where) {
  check_server(server, where);
  for (const auto deadline = rdmacommon::deadline_in(limit);;) {
    std::vector<BellSeen> down;
    for (CallerLane &lane : lanes_) {
      // A sender that has died cannot write its word any more, which may say that the lane is up.
      if (!lane.leads_to(server) || !lane.has_sender() || (lane.is_over && lane.is_over()))
        continue;
      if (lane.is_up())
        return true;
      down.push_back({&lane.answers.status().is_up, 0});
    }
    if (down.empty())
      throw Error("the sender", "it is gone", where);
    const auto now = steady_clock::now();
    if (now >= deadline)
      return false;
    sleep_on(down, every_bit, std::min(deadline, now + liveness_interval));
  }
}
// [wait-connected]

// [wait-any]
std::optional<size_t> CallerLanes::wait_any(std::span<const Pending> requests, milliseconds limit,
                                            std::optional<Waiting> waiting, Where where) {
  auto now = steady_clock::now();
  const auto deadline = rdmacommon::deadline_in(limit);
  Patience patience(waiting.value_or(waiting_));
  for (auto next_look = now + liveness_interval;; now = steady_clock::now()) {
    const bool will_sleep = patience.has_ended(false);
    const auto before = will_sleep ? bells() : std::vector<BellSeen>(); // before the words say so
    bool has_any = false;
    for (size_t i = 0; i < requests.size(); ++i) {
      const Pending &one = requests[i];
      if (one.lanes_ == nullptr) // collected
        continue;
      has_any = true;
      AnswerTable &answers = lanes_[one.lane_].answers;
      if (!answers.is_waiting(one.position_) ||
          (will_sleep && !answers.will_sleep_on_any(one.position_, bell_)))
        return i;
    }
    if (!has_any)
      throw Error("the responses", "all have been collected", where);
    if (now >= std::min(deadline, next_look)) {
      next_look = now + liveness_interval;
      const std::vector<bool> is_orphan = orphans();
      for (const Pending &one : requests)
        if (one.lanes_ != nullptr && is_orphan[one.lane_])
          throw Error("the sender", "it is gone", where);
    }
    if (now >= deadline)
      return std::nullopt;
    if (will_sleep)
      sleep_on(before, every_bit, std::min(deadline, now + liveness_interval));
    else
      sched_yield();
  }
}
// [wait-any]

// [request-then]
void CallerLanes::request_then(std::span<const std::byte> bytes, Then then,
                               const RequestOptions &options) {
  Pending pending = request_async(bytes, options);
  CallerLane &lane = lanes_[pending.lane_];
  const uint64_t position = pending.position_;
  // With the lock: run_ready() could give the slots back, and then another request could have them.
  const std::lock_guard lock(callbacks_mutex_);
  callbacks_.push_back({std::move(pending), std::move(then)});
  if (!lane.answers.will_sleep_on_any(position, bell_))
    event_.ring(); // it has come already
}

size_t CallerLanes::run_ready() {
  event_.take_back();
  const std::vector<bool> is_orphan = orphans();
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (is_orphan[i])
      lanes_[i].give_up(); // so that no callback waits for it
  std::list<Callback> ready;
  {
    const std::lock_guard lock(callbacks_mutex_);
    for (auto next = callbacks_.begin(); next != callbacks_.end();) {
      const auto one = next++;
      if (is_ready(one->pending) || is_orphan[one->pending.lane_])
        ready.splice(ready.end(), callbacks_, one);
    }
  }
  for (size_t count = 0;; ++count) {
    if (ready.empty())
      return count;
    std::list<Callback> one;
    one.splice(one.end(), ready, ready.begin());
    try {
      one.front().then(one.front().pending);
    } catch (...) { // the others are called next time
      const std::lock_guard lock(callbacks_mutex_);
      callbacks_.splice(callbacks_.begin(), ready);
      event_.ring();
      throw;
    }
  }
}
// [request-then]

bool CallerLanes::has_orphans() {
  const std::vector<bool> is_orphan = orphans();
  const std::lock_guard lock(callbacks_mutex_);
  return std::ranges::any_of(callbacks_,
                             [&](const Callback &one) { return is_orphan[one.pending.lane_]; });
}

// [listen]
int CallerLanes::fd() {
  const std::lock_guard lock(callbacks_mutex_);
  if (!listener_.joinable() && !lanes_.empty()) {
    const NoSignals no_signals;
    listener_ = std::thread([this, seen = bells()]() mutable { listen(std::move(seen)); });
    event_.ring(); // for what came before
  }
  return event_.fd();
}

void CallerLanes::listen(std::vector<BellSeen> seen) {
  while (!is_over_) {
    sleep_on(seen, every_bit, steady_clock::now() + liveness_interval);
    std::vector<BellSeen> now = bells();
    const bool is_changed = !std::ranges::equal(now, seen, {}, &BellSeen::seen, &BellSeen::seen);
    if (is_changed || has_orphans())
      event_.ring();
    seen = std::move(now);
  }
}
// [listen]

} // namespace rdmashared

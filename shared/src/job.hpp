// SPDX-License-Identifier: MIT
// A request on its way through the program's handler.
#pragma once

#include "worker_pool.hpp"

#include "rdmashared/server.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

namespace rdmashared {

// [job]
// The program's handler, and how long its latest calls have taken.
class TimedHandler {
public:
  explicit TimedHandler(RequestHandler handler) : handler_(std::move(handler)) {}

  void operator()(Request &request) {
    const auto began = Clock::now();
    try {
      // A request that the handler neither answers nor moves away fails at the end of its job.
      handler_(std::move(request));
    } catch (...) {
      if (!request.is_answered())
        request.fail(words_of(std::current_exception()));
    }
    const auto took = std::min<Clock::duration>(Clock::now() - began, std::chrono::seconds(1));
    const auto mean = mean_.load(std::memory_order_relaxed);
    mean_.store(mean + (took - mean) / 8, std::memory_order_relaxed);
  }
  // Shorter than a wake of another thread.
  bool is_short() const {
    return mean_.load(std::memory_order_relaxed) < std::chrono::microseconds(50);
  }

private:
  using Clock = std::chrono::steady_clock;

  const RequestHandler handler_;
  std::atomic<Clock::duration> mean_{std::chrono::milliseconds(1)}; // before the first call
};

// It calls the handler for one request.
struct Job {
  Request request;
  TimedHandler *handler;
  const std::atomic<bool> *is_closed; // of the request's SessionMemory

  // A client that has gone needs no answer, and other clients' requests wait for the thread.
  void operator()() {
    if (!*is_closed)
      (*handler)(request);
  }
};
// [job]

} // namespace rdmashared

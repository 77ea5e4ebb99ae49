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
// The program's handler, and how long it has taken of late.
class TimedHandler {
public:
  explicit TimedHandler(RequestHandler handler) : handler_(std::move(handler)) {}

  void operator()(Request &request) {
    const auto began = Clock::now();
    try {
      // If it neither answers the request nor moves it away, the request fails with its job.
      handler_(std::move(request));
    } catch (...) {
      if (!request.is_answered())
        request.fail(words_of(std::current_exception()));
    }
    const auto took = std::min<Clock::duration>(Clock::now() - began, std::chrono::seconds(1));
    const auto mean = mean_.load(std::memory_order_relaxed);
    mean_.store(mean + (took - mean) / 8, std::memory_order_relaxed);
  }
  // Another thread would take longer to wake.
  bool is_short() const {
    return mean_.load(std::memory_order_relaxed) < std::chrono::microseconds(50);
  }

private:
  using Clock = std::chrono::steady_clock;

  const RequestHandler handler_;
  std::atomic<Clock::duration> mean_{std::chrono::milliseconds(1)}; // until something is known
};

// It calls the handler for one request.
struct Job {
  Request request;
  TimedHandler *handler;
  const std::atomic<bool> *is_closed; // of the request's SessionMemory

  // The requests of a client that has gone must not keep a thread from the others' requests.
  void operator()() {
    if (!*is_closed)
      (*handler)(request);
  }
};
// [job]

} // namespace rdmashared

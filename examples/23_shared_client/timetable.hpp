// SPDX-License-Identifier: MIT
// A timetable says when requests are due. Users send requests like this: they do not wait until the
// request of another user has been answered (lesson 28).
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <sys/prctl.h>

#include <chrono>
#include <cstdint>
#include <thread>

class Timetable {
public:
  using Time = std::chrono::steady_clock::time_point;

  // The first request is due now, or a part of the interval later, so that not all processes send
  // at the same moment.
  // @param every_us microseconds between two requests; 0: there is no timetable
  // @param number   0 to `of` - 1: this one's, of all that have such a timetable
  explicit Timetable(uint32_t every_us, uint64_t number = 0, uint64_t of = 1)
      : every_(std::chrono::microseconds(every_us)) {
    if (!is_used())
      return;
    // By default, the kernel may wake a thread up to 50 us late, together with others. Now it may
    // not.
    rdmacommon::check_errno(prctl(PR_SET_TIMERSLACK, 1UL), "PR_SET_TIMERSLACK");
    begin_ = std::chrono::steady_clock::now() + every_ * number / of;
  }

  bool is_used() const { return every_.count() > 0; }
  Time due(uint64_t request) const { return begin_ + every_ * request; }

  // Sleeps until the request is due. One that is late already is sent at once.
  // @return when it was due. Its latency counts from then: otherwise the time for which it waited
  //         to be sent stays hidden.
  Time wait(uint64_t request) const {
    std::this_thread::sleep_until(due(request));
    return due(request);
  }

private:
  std::chrono::nanoseconds every_;
  Time begin_{};
};

// A process that sleeps takes no responses. With several requests under way, their latencies would
// contain its sleep.
inline void check_timetable(const rdmacommon::CommandLine &line, uint32_t every_us,
                            uint32_t in_flight) {
  if (every_us > 0 && in_flight > 1)
    line.reject("--every", "the program takes no responses while it sleeps; use --in-flight 1");
}

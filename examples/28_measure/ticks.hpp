// SPDX-License-Identifier: MIT
// The cheapest clock that there is: a counter in the CPU itself.
#pragma once

#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
#endif

#include <cstdint>
#include <ctime>
#include <limits>

inline double monotonic_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Counts at an even pace, whatever the CPU's frequency, and while it sleeps (x86: "constant_tsc"
// and "nonstop_tsc" in /proc/cpuinfo). There is no portable way to read its frequency.
inline uint64_t ticks() {
#if defined(__x86_64__) || defined(__i386__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t now = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return static_cast<uint64_t>(monotonic_us() * 1e3);
#endif
}

// The two clocks at one instant.
struct Instant {
  double us = 0;
  uint64_t ticks = 0;
};

// Between two looks, this thread can lose the CPU for milliseconds. So this function looks ten
// times, and returns the two looks that were closest together.
inline Instant both_clocks() {
  Instant closest;
  double least_us = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10; ++i) {
    const Instant now{.us = monotonic_us(), .ticks = ticks()};
    const double took_us = monotonic_us() - now.us;
    if (took_us < least_us) {
      least_us = took_us;
      closest = now;
    }
  }
  return closest;
}

// The length of a tick by the real clock: the average over all the time that this object has
// existed.
class TickLength {
public:
  double us() const {
    constexpr double least_us = 10'000; // in less, the cost of a look at the clock matters
    Instant now;
    do
      now = both_clocks();
    while (now.us - began_.us < least_us);
    return (now.us - began_.us) / static_cast<double>(now.ticks - began_.ticks);
  }

private:
  Instant began_ = both_clocks();
};

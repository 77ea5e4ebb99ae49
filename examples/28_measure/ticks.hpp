// SPDX-License-Identifier: MIT
// The cheapest clock that there is: a counter in the CPU itself.
#pragma once

#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
#endif

#include <cstdint>
#include <ctime>

inline double monotonic_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// [ticks]
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

// The length of a tick by the real clock: the average over all the time that this object has
// existed.
class TickLength {
public:
  double us() const {
    constexpr double least_us = 10'000; // in less, the cost of a look at the clock matters
    double passed_us = 0;
    uint64_t passed = 0;
    do {
      passed = ticks() - began_ticks_;
      passed_us = monotonic_us() - began_us_;
    } while (passed_us < least_us);
    return passed_us / static_cast<double>(passed);
  }

private:
  double began_us_ = monotonic_us();
  uint64_t began_ticks_ = ticks();
};
// [ticks]

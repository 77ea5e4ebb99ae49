// SPDX-License-Identifier: MIT
/// @file
/// How long something took, and how much of that this process, or this machine, was awake for.
///
/// Written out in lesson 04_read_write; see also clock_gettime(2).
#pragma once

#include <chrono>
#include <ctime>
#include <vector>

namespace rdmacommon {

/// Runs from when it is made. May be read by several threads; what it says of the CPU is of the
/// whole process.
class Stopwatch {
public:
  /// @return milliseconds since it was made
  double elapsed_ms() const { return now_ms(CLOCK_MONOTONIC) - began_; }
  /// @return of these, for how many this process had a CPU, its system calls included
  double cpu_ms() const { return now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_began_; }

private:
  static double now_ms(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  }
  double began_ = now_ms(CLOCK_MONOTONIC), cpu_began_ = now_ms(CLOCK_PROCESS_CPUTIME_ID);
};

/// When a time limit that begins now has passed.
/// @param limit any number: beyond the clock's range, in 292 years, there is no limit
inline std::chrono::steady_clock::time_point deadline_in(std::chrono::milliseconds limit) {
  using std::chrono::steady_clock;
  const auto now = steady_clock::now();
  const auto longest =
      std::chrono::floor<std::chrono::milliseconds>(steady_clock::time_point::max() - now);
  return limit < longest ? now + limit : steady_clock::time_point::max();
}

/// The middle one of some measured values. What disturbs a few of them does not change it, as it
/// changes the mean.
/// @param values not empty, in any order; of an even number, the upper one of the two in the middle
double median(std::vector<double> values);

/// For how many milliseconds the CPUs of this machine have worked since it was booted: all
/// processes, and what the kernel does in nobody's name, as SoftRoCE does when packets come. Two
/// CPUs count double. A difference of two readings says what lies between; it is told in steps of
/// 10 ms, so let it be a second or more. Written out in lesson 28_measure; see also proc(5).
/// @throws Error if /proc/stat cannot be read
double machine_cpu_ms();

} // namespace rdmacommon

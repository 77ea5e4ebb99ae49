// SPDX-License-Identifier: MIT
/// @file
/// A stopwatch for elapsed time and CPU time, a time limit, and a median.
///
/// Written out in lesson 04_read_write; see also clock_gettime(2).
#pragma once

#include <chrono>
#include <ctime>
#include <vector>

namespace rdmacommon {

/// A stopwatch that runs from when it is made. Several threads may read it. Its CPU time is that of
/// the whole process.
///
///     const rdmacommon::Stopwatch stopwatch;
///     work();
///     std::printf("%.1f ms, of which %.1f ms with a CPU\n", stopwatch.elapsed_ms(),
///                 stopwatch.cpu_ms());
class Stopwatch {
public:
  /// The time since it was made, in milliseconds.
  double elapsed_ms() const { return now_ms(CLOCK_MONOTONIC) - began_; }
  /// The CPU time of this process since then, in milliseconds, system calls included.
  double cpu_ms() const { return now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_began_; }

private:
  static double now_ms(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  }
  double began_ = now_ms(CLOCK_MONOTONIC), cpu_began_ = now_ms(CLOCK_PROCESS_CPUTIME_ID);
};

/// The moment when a time limit that begins now has passed.
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

/// The CPU time of the whole machine since it was booted, in milliseconds: that of all processes,
/// and of the kernel itself, in which SoftRoCE takes packets. Two busy CPUs count double. Take the
/// difference of two readings. It comes in steps of 10 ms, so measure a second or more. Written out
/// in lesson 28_measure; see also proc(5).
/// @throws Error if /proc/stat cannot be read
double machine_cpu_ms();

} // namespace rdmacommon

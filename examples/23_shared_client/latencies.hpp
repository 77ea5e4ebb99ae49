// SPDX-License-Identifier: MIT
// Latencies of requests: counts by length, eight for each power of two, so that a percentile is
// right within 12 %.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>

class Latencies {
public:
  void add(std::chrono::nanoseconds took) {
    const auto value = static_cast<uint64_t>(std::max<int64_t>(took.count(), 8));
    ++counts_[std::min(index_of(value), counts_.size() - 1)];
  }
  void add(const Latencies &more) {
    for (size_t i = 0; i < counts_.size(); ++i)
      counts_[i] += more.counts_[i];
  }

  // @return microseconds; 0 if there is none
  double percentile(double percent) const {
    uint64_t all = 0, before = 0;
    for (const uint32_t count : counts_)
      all += count;
    for (size_t i = 0; i < counts_.size(); ++i)
      if (before += counts_[i];
          all > 0 && static_cast<double>(before) >= percent / 100 * static_cast<double>(all))
        return static_cast<double>(end_of(i)) / 1000;
    return 0;
  }
  void print() const {
    std::printf("latency: median %.1f us, 90 %% %.1f us, 99 %% %.1f us, most %.1f us\n",
                percentile(50), percentile(90), percentile(99), percentile(100));
  }

private:
  // The power of two, and the next three bits.
  static size_t index_of(uint64_t value) {
    const auto power = static_cast<unsigned>(std::bit_width(value)) - 4;
    return power * 8 + (value >> power & 7);
  }
  static uint64_t end_of(size_t index) { return (8 + index % 8 + 1) << index / 8; }

  std::array<uint32_t, 320> counts_{}; // times up to 2^43 ns
};

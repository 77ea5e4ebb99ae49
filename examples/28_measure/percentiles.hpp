// SPDX-License-Identifier: MIT
// Many measured times, and what is worth saying about them.
#pragma once

#include "ticks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

class Times {
public:
  // Room for all of them at once: growing would disturb the rounds that follow.
  explicit Times(size_t count) { ticks_.reserve(count); }
  void add(uint64_t ticks) { ticks_.push_back(ticks); }
  void sort() { std::ranges::sort(ticks_); }

  // After sort(): the time that `percent` of all have not exceeded, in ticks. Each is one that was
  // measured: nothing is interpolated.
  double percentile(double percent) const {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(size())));
    return static_cast<double>(ticks_.at(std::clamp<size_t>(rank, 1, size()) - 1));
  }
  double mean() const {
    return std::accumulate(ticks_.begin(), ticks_.end(), 0.0) / static_cast<double>(size());
  }
  size_t size() const { return ticks_.size(); }

private:
  std::vector<uint64_t> ticks_;
};

// @param unit microseconds in a tick, or in two of them where half a round is wanted
inline void print_percentiles(const Times &times, double unit) {
  std::printf("median %.3f us, 90%% %.3f us, 99%% %.3f us, 99.9%% %.3f us, most %.3f us\n",
              times.percentile(50) * unit, times.percentile(90) * unit, times.percentile(99) * unit,
              times.percentile(99.9) * unit, times.percentile(100) * unit);
}

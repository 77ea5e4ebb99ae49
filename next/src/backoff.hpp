// SPDX-License-Identifier: MIT
// How long to stay away after a failure. Written out in lesson 13.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace rdmashared {

// Twice as long each time, up to a limit, with a random part: so clients that lost the server
// together do not come back together.
class Backoff {
public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds limit)
      : first_(first), limit_(limit) {}

  std::chrono::milliseconds next() {
    const auto longest = std::min(first_ * (1 << std::min(failures_++, 16)), limit_);
    return std::chrono::milliseconds(
        std::uniform_int_distribution<int64_t>(longest.count() / 2, longest.count())(random_));
  }
  void reset() { failures_ = 0; }

private:
  const std::chrono::milliseconds first_, limit_;
  int failures_ = 0;
  std::mt19937 random_{std::random_device{}()};
};

} // namespace rdmashared

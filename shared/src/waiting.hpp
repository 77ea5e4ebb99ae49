// SPDX-License-Identifier: MIT
// When a thread with nothing to do may sleep.
#pragma once

#include "rdmashared/basics.hpp"

#include <chrono>

namespace rdmashared {

constexpr std::chrono::microseconds spin_time(50); // of Waiting::spin

// Says whether a thread without work should sleep. Used by that thread alone.
class Patience {
public:
  explicit Patience(Waiting how) : how_(how) {}

  // @param was_busy whether there was something to do since the last call
  bool has_ended(bool was_busy) {
    if (how_ != Waiting::spin)
      return how_ == Waiting::events && !was_busy;
    const auto now = std::chrono::steady_clock::now();
    if (was_busy)
      last_busy_ = now;
    return now - last_busy_ >= spin_time;
  }

private:
  const Waiting how_;
  std::chrono::steady_clock::time_point last_busy_ = std::chrono::steady_clock::now();
};

} // namespace rdmashared

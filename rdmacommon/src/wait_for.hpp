// SPDX-License-Identifier: MIT
// Internal: sleeping until a file descriptor is ready, with a time limit.
#pragma once

#include <chrono>

namespace rdmacommon {

// The clock of all deadlines. Nobody can set it.
using Clock = std::chrono::steady_clock;

// The time that is left until `deadline`, never less than 0. It is rounded up: with less than a
// millisecond left, a program would not sleep but spin.
std::chrono::milliseconds time_left(Clock::time_point deadline);

// Sleeps until `fd` is ready for `events` (POLLIN, POLLOUT). Signals do not end it.
// @return false when the time is over
bool wait_for(int fd, short events, Clock::time_point deadline);

} // namespace rdmacommon

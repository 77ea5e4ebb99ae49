// SPDX-License-Identifier: MIT
#include "wait_for.hpp"

#include "rdmacommon/check.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace rdmacommon {

using std::chrono::milliseconds;

milliseconds time_left(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(0));
}

bool wait_for(int fd, short events, Clock::time_point deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  // More than a day at a time is more than poll(2) takes.
  const milliseconds longest = std::chrono::hours(24);
  while (true) {
    const milliseconds left = std::min(time_left(deadline), longest);
    const int ready = poll(&entry, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR)
      throw_errno(errno, "poll");
    if (ready > 0)
      return true;
    if (ready == 0 && left < longest)
      return false;
  }
}

} // namespace rdmacommon

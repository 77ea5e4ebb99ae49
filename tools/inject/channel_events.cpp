// SPDX-License-Identifier: MIT
// Waits for events, and notes which channels have a delayed one.

#include "channel_events.hpp"

#include "object_registry.hpp"

#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <set>

namespace inject {
namespace {

constexpr int milliseconds = 20; // by which a blocking call is delayed

std::set<int> &delayed() {
  static auto &fds = *new std::set<int>;
  return fds;
}

bool never_blocks(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK);
}

} // namespace

bool wait_for_event(int fd) {
  const int before = errno;
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  const bool is_there = poll(&entry, 1, never_blocks(fd) ? 0 : -1) > 0;
  errno = before;
  return is_there;
}

bool was_delayed(int fd) {
  const std::lock_guard lock(preload::lock_of_all());
  return delayed().erase(fd) > 0;
}

bool delay(int fd) {
  if (!never_blocks(fd)) {
    poll(nullptr, 0, milliseconds);
    return false;
  }
  const std::lock_guard lock(preload::lock_of_all());
  delayed().insert(fd);
  return true;
}

} // namespace inject

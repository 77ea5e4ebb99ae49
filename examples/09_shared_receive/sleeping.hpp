// SPDX-License-Identifier: MIT
// The sleep of both sides of 09_shared_receive: until a completion, an event of the device, or a
// peer's message over TCP.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>

#include <infiniband/verbs.h>

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <vector>

// Like the channel's file, that of the device's events: reading from it must not block, since we
// sleep in poll(2).
inline void do_not_block(int fd) {
  const int flags = rdmacommon::check_errno(fcntl(fd, F_GETFL), "fcntl(F_GETFL)");
  rdmacommon::check_errno(fcntl(fd, F_SETFL, flags | O_NONBLOCK), "fcntl(O_NONBLOCK)");
}

// Sleeps until the channel has an event, the device has one, or a peer has something to say over
// TCP, or is gone: then heard(peer) is called. Returns false if nothing of that happened in time.
// `device_events` and a peer's fd() can be -1: poll(2) passes over those.
template <typename Peers, typename Heard>
bool sleep_until_something(ibv_comp_channel *channel, int device_events, Peers &peers,
                           std::chrono::milliseconds timeout, Heard heard) {
  std::vector<pollfd> files{{.fd = channel->fd, .events = POLLIN, .revents = 0},
                            {.fd = device_events, .events = POLLIN, .revents = 0}};
  for (const auto &peer : peers)
    files.push_back({.fd = peer.fd(), .events = POLLIN, .revents = 0});
  const int count = poll(files.data(), files.size(), static_cast<int>(timeout.count()));
  if (count < 0 && errno != EINTR)
    rdmacommon::throw_errno(errno, "poll");
  while (rdmacommon::take_event(channel) != nullptr)
    ;
  for (size_t i = 0; count > 0 && i < peers.size(); ++i)
    if (files[i + 2].revents != 0)
      heard(peers[i]);
  return count != 0;
}

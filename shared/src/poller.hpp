// SPDX-License-Identifier: MIT
// Both loops sleep on it, for completions, rdma_cm events, and the events that other threads ring.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmashared {

// A loop that always has something to do looks around once in so many turns.
constexpr uint32_t busy_turns = 64;

class Poller {
public:
  int fd() const { return epoll_.get(); } // readable if wait() has something
  // @param mark given back with each event
  void watch(int fd, epoll_data_t mark) {
    epoll_event event{.events = EPOLLIN, .data = mark};
    rdmacommon::check_errno(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
  }
  // Fails if nobody watches it, which does not matter.
  void forget(int fd) const noexcept { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  // @param may_sleep false: only looks
  // @return what has happened; valid until the next call
  std::span<const epoll_event> wait(std::chrono::steady_clock::time_point until, bool may_sleep) {
    using std::chrono::milliseconds;
    const auto left =
        std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now()).count();
    const int count =
        epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                   may_sleep ? static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)) : 0);
    if (count < 0 && errno != EINTR)
      rdmacommon::throw_errno(errno, "epoll_wait");
    return std::span(events_).first(static_cast<size_t>(std::max(count, 0)));
  }

private:
  rdmacommon::File epoll_{rdmacommon::check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")};
  std::array<epoll_event, 64> events_{};
};

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// A thread with a loop may run a handler while a second thread stands by: when something happens in
// the loop, the second thread takes the loop. So a request that comes alone wakes no other thread,
// and a handler that takes long still holds up nobody.
#pragma once

#include "events.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>

namespace rdmashared {

// [stand-in]
class StandIn {
public:
  // @param loop    a descriptor that is readable when something has happened in the loop
  // @param longest the loop is not left for longer, even if nothing happens: it has a clock to look
  //                at, too
  StandIn(int loop, std::chrono::milliseconds longest)
      : loop_(loop), longest_(static_cast<int>(longest.count())) {
    watch(EPOLL_CTL_ADD, loop_, 0);
    watch(EPOLL_CTL_ADD, over_.fd(), EPOLLIN);
  }

  // The thread that has the loop:

  bool stands_by() const { return stands_by_.load(std::memory_order_acquire); }
  // Leaves the loop while a handler runs. Call it only if stands_by().
  void leave() {
    is_left_.store(true, std::memory_order_release);
    watch(EPOLL_CTL_MOD, loop_, EPOLLIN | EPOLLONESHOT);
  }
  // @return false if the other thread has the loop now. Call stand_by() then
  bool come_back() {
    const bool has_it = take();
    if (has_it)
      watch(EPOLL_CTL_MOD, loop_, 0);
    return has_it;
  }
  // From any thread: there is no loop any more.
  void end() const { over_.ring(); }

  // The other thread:

  // @return true if this thread has the loop now; false after end()
  bool stand_by() {
    for (;;) {
      stands_by_.store(true, std::memory_order_release);
      epoll_event event{};
      const int count = epoll_wait(epoll_.get(), &event, 1, longest_);
      if (count < 0 && errno != EINTR)
        rdmacommon::throw_errno(errno, "epoll_wait");
      if (count > 0 && event.data.fd == over_.fd())
        return false;
      // Before it takes the loop: the other thread may stand by at once.
      stands_by_.store(false, std::memory_order_relaxed);
      if (take())
        return true;
    }
  }

private:
  bool take() { return is_left_.exchange(false, std::memory_order_acq_rel); }
  void watch(int how, int fd, uint32_t events) const {
    epoll_event event{.events = events, .data = {.fd = fd}};
    rdmacommon::check_errno(epoll_ctl(epoll_.get(), how, fd, &event), "epoll_ctl");
  }

  const int loop_, longest_;
  Event over_;
  rdmacommon::File epoll_{rdmacommon::check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")};
  std::atomic<bool> is_left_ = false, stands_by_ = false;
};
// [stand-in]

} // namespace rdmashared

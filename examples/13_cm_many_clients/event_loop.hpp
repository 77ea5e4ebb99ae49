// SPDX-License-Identifier: MIT
// The event loop of many_server.cpp: one epoll over file descriptors, a timer, and the signals that
// end the server.
#pragma once

#include <rdmacommon/check.hpp>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>

class EventLoop {
public:
  using Clock = std::chrono::steady_clock;

  EventLoop() {
    watch(timer_.get());
    watch(signals_.get());
  }

  void watch(int fd) {
    epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
    rdmacommon::check_errno(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted), "epoll_ctl");
  }

  // Sleeps until a file can be read or the time has come. Calls `on_ready` with each file that can
  // be read.
  template <typename OnReady> void sleep_until(Clock::time_point when, OnReady on_ready) {
    set_timer(when);
    std::array<epoll_event, 8> ready{};
    const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), -1);
    if (count < 0 && errno != EINTR)
      rdmacommon::throw_errno(errno, "epoll_wait");
    for (int i = 0; i < count; ++i)
      on_ready(
          ready.at(static_cast<size_t>(i)).data.fd); // the timer's descriptor only ends the sleep
  }

  // Reads a signal. Returns true if SIGTERM or SIGINT has come.
  bool take_stop_signal() const {
    signalfd_siginfo which{};
    return read(signals_.get(), &which, sizeof which) > 0;
  }

private:
  void set_timer(Clock::time_point when) {
    itimerspec value{}; // all zero: no timer
    if (when != Clock::time_point::max()) {
      const std::chrono::nanoseconds left =
          std::max<Clock::duration>(when - Clock::now(), std::chrono::milliseconds(1));
      value.it_value = {.tv_sec = left.count() / 1'000'000'000,
                        .tv_nsec = static_cast<long>(left.count() % 1'000'000'000)};
    }
    // This also clears an expiration that nobody has read.
    rdmacommon::check_errno(timerfd_settime(timer_.get(), 0, &value, nullptr), "timerfd_settime");
  }

  static int open_stop_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    rdmacommon::check_errno(sigprocmask(SIG_BLOCK, &set, nullptr), "sigprocmask");
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  class File {
  public:
    File(int fd, const char *call) : fd_(rdmacommon::check_errno(fd, call)) {}
    ~File() { close(fd_); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
  };
  File epoll_{epoll_create1(EPOLL_CLOEXEC), "epoll_create1"};
  File timer_{timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create"};
  File signals_{open_stop_signals(), "signalfd"};
};

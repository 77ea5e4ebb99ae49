// SPDX-License-Identifier: MIT
// Small things that both loops need: an event that wakes a thread, and threads that take no
// signals.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

namespace rdmashared {

// A descriptor that is readable once somebody has rung.
class Event {
public:
  int fd() const { return file_.get(); }
  // [ring]
  // From any thread, and from a signal handler. It cannot fail: a counter that is full is readable,
  // too.
  void ring() const noexcept {
    const int before = errno;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(file_.get(), &one, sizeof one);
    errno = before;
  }
  // [ring]
  // @return whether somebody has
  bool take_back() const noexcept {
    uint64_t count;
    return read(file_.get(), &count, sizeof count) == sizeof count;
  }

private:
  rdmacommon::File file_{
      rdmacommon::check_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")};
};

// A thread inherits what is blocked where it is made. Signals are the program's, so they go to its
// other threads.
class NoSignals {
public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals &) = delete;
  NoSignals &operator=(const NoSignals &) = delete;

private:
  sigset_t before_{};
};

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Child processes that begin together. For many_client.cpp.
#pragma once

#include <rdmacommon/check.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <vector>

// Holds the children until all of them are connected: each writes a byte to one pipe, and then
// waits for the end of the other, which the parent closes. A child that dies has written nothing,
// so the parent has a time limit.
class Gate {
public:
  Gate() {
    rdmacommon::check_errno(pipe2(arrived_.data(), O_CLOEXEC), "pipe2");
    rdmacommon::check_errno(pipe2(opened_.data(), O_CLOEXEC), "pipe2");
  }
  void child_begins() const { close(opened_[1]); } // or the end would never come
  void pass() const {
    char byte = 0;
    rdmacommon::check_errno(static_cast<int>(write(arrived_[1], &byte, 1)), "write");
    rdmacommon::check_errno(static_cast<int>(read(opened_[0], &byte, 1)), "read");
  }
  bool is_first_failure() const { return !failed_->test_and_set(); }
  void open_when(uint32_t count, std::chrono::milliseconds limit) {
    close(arrived_[1]);
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + limit;
    const auto left = [&] {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      return static_cast<int>(std::max<int64_t>(rest.count(), 0));
    };
    char byte = 0;
    pollfd readable{.fd = arrived_[0], .events = POLLIN, .revents = 0};
    while (count > 0 && poll(&readable, 1, left()) > 0 && read(arrived_[0], &byte, 1) > 0)
      --count;
    close(opened_[1]);
  }

private:
  static void *shared_memory() {
    void *memory = mmap(nullptr, sizeof(std::atomic_flag), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rdmacommon::check_errno(memory == MAP_FAILED ? -1 : 0, "mmap");
    return memory;
  }
  std::atomic_flag *const failed_ = new (shared_memory()) std::atomic_flag;
  std::array<int, 2> arrived_{}, opened_{};
};

// A process for `work`, before anything of RDMA: a child must not have any of its parent's (lesson
// 15). Of those that fail, the first one says why.
template <typename Work> pid_t start(const Gate &gate, Work work) {
  std::fflush(stdout);
  const pid_t parent = getpid();
  const pid_t pid = rdmacommon::check_errno(fork(), "fork");
  if (pid != 0)
    return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) // its end came before the line above
    _exit(1);
  gate.child_begins();
  int status = 1;
  try {
    work();
    status = 0;
  } catch (const std::exception &error) {
    if (gate.is_first_failure())
      std::fprintf(stderr, "error: a client: %s\n", error.what());
  }
  std::fflush(stdout);
  _exit(status);
}

// @return whether all have ended well
inline bool wait_for(const std::vector<pid_t> &children) {
  bool good = true;
  for (const pid_t pid : children) {
    int status = 0;
    rdmacommon::check_errno(waitpid(pid, &status, 0), "waitpid");
    good = good && status == 0;
  }
  return good;
}

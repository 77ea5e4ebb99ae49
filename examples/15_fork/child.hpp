// SPDX-License-Identifier: MIT
// 15_fork: child processes that always end, and the socket between a child and its parent.
#pragma once

#include <rdmacommon/check.hpp>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

using Limit = std::chrono::milliseconds;

// @return whether `fd` became readable in time; the end of the other side counts
inline bool is_readable(int fd, Limit limit) {
  pollfd what{.fd = fd, .events = POLLIN, .revents = 0};
  int ready = -1;
  do
    ready = poll(&what, 1, static_cast<int>(limit.count()));
  while (ready < 0 && errno == EINTR);
  return rdmacommon::check_errno(ready, "poll") > 0;
}

// One end of a socket that keeps messages apart (SOCK_SEQPACKET). Owns it.
class Link {
public:
  explicit Link(int fd = -1) : fd_(fd) {}
  ~Link() {
    if (fd_ >= 0)
      close(fd_);
  }
  Link(Link &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Link &operator=(Link &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  bool can_receive(Limit limit = Limit(0)) const { return is_readable(fd_, limit); }

  void send(const std::string &text) const { // not empty: that would be the end of the connection
    if (::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) < 0)
      rdmacommon::throw_errno(errno, "telling the other process");
  }
  std::string receive(Limit limit, rdmacommon::Where where = rdmacommon::Where::here()) const {
    std::array<char, 512> text{};
    if (!can_receive(limit))
      throw rdmacommon::Error("the other process", "it has not said anything in time", where);
    const auto length = recv(fd_, text.data(), text.size(), 0);
    if (length < 0 && errno != ECONNRESET) // ended, with something of ours unread
      rdmacommon::throw_errno(errno, "recv", where);
    if (length <= 0)
      throw rdmacommon::Error("the other process", "it is gone", where);
    return {text.data(), static_cast<size_t>(length)};
  }

private:
  int fd_;
};

inline std::pair<Link, Link> make_link() {
  std::array<int, 2> ends{};
  // CLOEXEC, here and everywhere: what is inherited by mistake stays open behind everybody's back.
  rdmacommon::check_errno(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()),
                          "socketpair");
  return {Link(ends[0]), Link(ends[1])};
}

// Runs `body`, a function of the link to its parent, in a child process.
class Child {
public:
  template <typename Body> explicit Child(const Body &body) {
    auto [mine, theirs] = make_link();
    std::fflush(nullptr); // or the child prints what stands in the buffers, too
    // [child]
    const pid_t parent = getpid();
    pid_ = rdmacommon::check_errno(fork(), "fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL); // our parent's end is ours, however it comes
      if (getppid() != parent)          // it came before the line above
        _exit(1);
      mine = Link();
      int status = 1;
      try { // nothing may unwind into frames that belong to the parent
        body(theirs);
        status = 0;
      } catch (const std::exception &error) {
        std::fprintf(stderr, "error: %s\n", error.what());
      }
      std::fflush(nullptr);
      // Not exit(): it runs the destructors of static objects, and those are the parent's.
      _exit(status);
    }
    // [child]
    link_ = std::move(mine);
    // glibc before 2.36 has no function for it.
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  }
  Child(const Child &) = delete;
  Child &operator=(const Child &) = delete;
  ~Child() {
    if (pid_ > 0) { // nobody has waited for it: it has nothing more to do
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (pidfd_ >= 0)
      close(pidfd_);
  }

  const Link &link() const { return link_; }
  pid_t pid() const { return pid_; }

  // @return its exit status, or 128 and the signal that ended it
  int wait(Limit limit) {
    rdmacommon::check_errno(pidfd_, "pidfd_open");
    if (!is_readable(pidfd_, limit)) // waitpid() has no time limit
      throw rdmacommon::Error("a child process", "it does not end");
    int status = 0;
    rdmacommon::check_errno(waitpid(std::exchange(pid_, -1), &status, 0), "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

private:
  Link link_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
};

// SPDX-License-Identifier: MIT
/// @file
/// Several processes, of which one owns the RDMA resources: child processes that always end, a
/// socket between two processes, and memory that goes over it.
///
/// Written out in lessons 15_fork and 16_sharing; see also fork(2), unix(7), memfd_create(2),
/// pidfd_open(2).
#pragma once

#include "rdmacommon/check.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacommon {

/// A file descriptor that is closed with its owner. Close-on-exec if it comes from a function of
/// this file.
///
///     const rdmacommon::File epoll(
///         rdmacommon::check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
///     epoll_event wanted{.events = EPOLLIN, .data = {.u32 = 1}};
///     rdmacommon::check_errno(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, parent.fd(), &wanted),
///                             "epoll_ctl");
class File {
public:
  explicit File(int fd = -1) : fd_(fd) {} ///< Takes `fd`; -1 is none.
  ~File();
  File(File &&other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {} ///< Leaves `other` without one.
  File &operator=(File &&other) noexcept;    ///< Swaps the two descriptors.

  int get() const { return fd_; }                  ///< Stays this object's.
  int release() { return std::exchange(fd_, -1); } ///< Gives the descriptor to the caller.

private:
  int fd_;
};

/// One end of a socket that keeps messages apart (a unix socket, SOCK_SEQPACKET). Owns it. Not
/// thread-safe. A message is 1 to `longest` bytes; what they mean is up to the two.
///
///     const auto [here, there] = rdmacommon::make_link();
///     here.send("hello");
///     const std::string text = there.receive(std::chrono::seconds(1)); // "hello"
class Link {
public:
  static constexpr size_t longest = 4096; ///< Most bytes of a message.
  static constexpr size_t max_files = 32; ///< Most files that go with a message.

  Link() = default; ///< Makes an end without a socket; move another one into it.
  explicit Link(File socket) : socket_(std::move(socket)) {} ///< Takes a socket of this kind.

  /// The socket, for poll(2): readable when a message has come, or the other side is gone. Stays
  /// this object's; -1 if there is none.
  int fd() const { return socket_.get(); }

  /// Returns true if receive() would not wait: there is a message, or the other side is gone.
  /// @param limit how long to wait for that; 0 does not wait
  bool can_receive(std::chrono::milliseconds limit = std::chrono::milliseconds(0)) const;

  /// Sends one message. With `files`, the other side gets descriptors of its own for the same open
  /// files.
  /// @throws Error if the other side is gone, or the message is empty or too long
  void send(std::string_view text, std::span<const int> files = {},
            Where where = Where::here()) const;

  /// Waits for one message.
  /// @throws Error if none comes within `limit`, if the other side is gone, or if files come with
  ///         it
  std::string receive(std::chrono::milliseconds limit, Where where = Where::here()) const;

  /// Receives a text that comes with files.
  /// @param files filled with what came, close-on-exec; exactly `count`
  /// @throws Error also if there are fewer or more
  std::string receive(std::chrono::milliseconds limit, std::vector<File> &files, size_t count,
                      Where where = Where::here()) const;

  /// Receives a text with as many files as come, 0 to `max_files`: the text says how many there
  /// should be.
  std::string receive(std::chrono::milliseconds limit, std::vector<File> &files,
                      Where where = Where::here()) const;

private:
  File socket_;
};

/// Two ends of a new link, for a process and a child that it is about to fork.
std::pair<Link, Link> make_link(Where where = Where::here());

/// A child process, which ends at the latest with the thread that made it, or with this object. To
/// be made before the device is opened: what the child inherits of verbs objects it must not touch.
///
///     const auto body = [](const rdmacommon::Link &parent) { parent.send("hello"); };
///     rdmacommon::Child child(body);
///     const std::string said = child.link().receive(std::chrono::seconds(1));
///     const int status = child.wait(std::chrono::seconds(1));
class Child {
public:
  /// Forks. The child runs `body` with its end of a link and leaves by _exit(): no destructor of
  /// the parent's objects is run, and no exception gets out of it. Its exit status is 0, or 1 if
  /// `body` threw, which is printed. To be called while the process has one thread: a child of a
  /// process with more must not do much beside exec.
  /// @param body runs in the child; what it refers to is a copy of what the parent had
  /// @throws Error if there is no room for another process
  explicit Child(const std::function<void(const Link &parent)> &body);
  ~Child(); ///< Ends the child, like kill().
  Child(const Child &) = delete;
  Child &operator=(const Child &) = delete;

  /// The parent's end of the link, for what the two say to each other.
  const Link &link() const { return link_; }
  pid_t pid() const { return pid_; } ///< The child's number; -1 after wait() or kill().
  /// A descriptor for poll(2): readable when the child has ended.
  int pidfd() const { return pidfd_.get(); }

  /// Waits for the child's end. To be called once.
  /// @return its exit status, or 128 and the number of the signal that ended it
  /// @throws Error if it does not end within `limit`
  int wait(std::chrono::milliseconds limit, Where where = Where::here());

  /// Ends it by SIGKILL, and waits until it is gone. There is nothing to do after wait().
  void kill();

private:
  Link link_;
  pid_t pid_ = -1;
  File pidfd_;
};

/// Memory with a descriptor and without a name: it can be sent over a Link, and it is gone with the
/// last process that has it. Nobody can change its size any more, so nobody who maps it dies of
/// SIGBUS.
/// @param name shown in /proc/PID/maps, for the curious; need not be unique
/// @param length in bytes, more than 0
/// @throws Error if there is no room
File make_shared_memory(const char *name, size_t length, Where where = Where::here());

/// Such memory in this process's address space, where every process has it at another address. A
/// child that is forked while it is mapped has it too. Register it after that fork, or before; it
/// is the same memory either way.
///
///     const rdmacommon::File file = rdmacommon::make_shared_memory("numbers", 4096);
///     parent.send("numbers", std::array{file.get()}); // the other process maps it, too
///     const rdmacommon::SharedMemory memory(file.get(), 4096);
///     const auto mr = rdmacommon::reg_mr(pd.get(), memory.data(), memory.length(), access);
class SharedMemory {
public:
  /// Maps it; the descriptor may be closed after that.
  /// @param fd     as make_shared_memory() made it, in this process or in another
  /// @param length the length that it must have
  /// @throws Error if it has another length, or if its size could still be changed
  SharedMemory(int fd, size_t length);
  ~SharedMemory();
  SharedMemory(const SharedMemory &) = delete;
  SharedMemory &operator=(const SharedMemory &) = delete;

  void *data() const { return data_; }      ///< The beginning of the memory. It is zero at first.
  size_t length() const { return length_; } ///< Length in bytes.

private:
  void *data_;
  size_t length_;
};

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
#include "rdmacommon/processes.hpp"
#include "rdmacommon/stopwatch.hpp"

#include "wait_for.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

namespace rdmacommon {
namespace {

using std::chrono::milliseconds;

bool is_readable(int fd, milliseconds limit) {
  return wait_for(fd, POLLIN, deadline_in(limit));
}

struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(Link::max_files * sizeof(int))> bytes{};
};

} // namespace

File::~File() {
  if (fd_ >= 0)
    close(fd_);
}

File &File::operator=(File &&other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

bool Link::can_receive(milliseconds limit) const {
  return is_readable(fd(), limit);
}

void Link::send(std::string_view text, std::span<const int> files, Where where) const {
  if (text.empty() || text.size() > longest || files.size() > max_files)
    throw Error("a message", "it is empty or too long", where);
  iovec words{.iov_base = const_cast<char *>(text.data()), .iov_len = text.size()};
  msghdr message{.msg_iov = &words, .msg_iovlen = 1};
  Control control;
  if (!files.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  }
  if (sendmsg(fd(), &message, MSG_NOSIGNAL) < 0)
    throw_errno(errno, "sendmsg", where);
}

std::string Link::receive(milliseconds limit, Where where) const {
  std::vector<File> none;
  return receive(limit, none, 0, where);
}

std::string Link::receive(milliseconds limit, std::vector<File> &files, size_t count,
                          Where where) const {
  std::string text = receive(limit, files, where);
  if (files.size() != count) {
    files.clear();
    throw Error("the other process's message", "it does not have the expected files", where);
  }
  return text;
}

std::string Link::receive(milliseconds limit, std::vector<File> &files, Where where) const {
  files.clear();
  if (!can_receive(limit))
    throw Error("the other process", "it has not said anything in time", where);
  std::array<char, longest> text;
  iovec words{.iov_base = text.data(), .iov_len = text.size()};
  Control control;
  msghdr message{.msg_iov = &words,
                 .msg_iovlen = 1,
                 .msg_control = control.bytes.data(),
                 .msg_controllen = control.bytes.size()};
  const auto length = recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
  if (length < 0 && errno != ECONNRESET) // ended, with something of ours unread
    throw_errno(errno, "recvmsg", where);
  if (length <= 0)
    throw Error("the other process", "it is gone", where);
  for (cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
      for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
        files.emplace_back(fd); // ours from here on, wanted or not
      }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    files.clear();
    throw Error("the other process's message",
                "it is too long, or has more files than there is room for", where);
  }
  return {text.data(), static_cast<size_t>(length)};
}

std::pair<Link, Link> make_link(Where where) {
  std::array<int, 2> ends{};
  check_errno(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), "socketpair",
              where);
  return {Link(File(ends[0])), Link(File(ends[1]))};
}

Child::Child(const std::function<void(const Link &parent)> &body) {
  auto [mine, theirs] = make_link();
  std::fflush(nullptr); // or the child prints what stands in the buffers, too
  const pid_t parent = getpid();
  pid_ = check_errno(fork(), "fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) // its end came before the line above
      _exit(1);
    mine = Link();
    int status = 1;
    try {
      body(theirs);
      status = 0;
    } catch (const std::exception &error) {
      std::fprintf(stderr, "error: %s\n", error.what());
    } catch (...) {
      std::fprintf(stderr, "error: an unknown exception\n");
    }
    std::fflush(nullptr);
    _exit(status);
  }
  link_ = std::move(mine);
  // glibc before 2.36 has no function for it.
  pidfd_ = File(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
}

Child::~Child() {
  kill();
}

void Child::kill() {
  if (pid_ < 0)
    return;
  ::kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR)
    ;
  pid_ = -1;
}

int Child::wait(milliseconds limit, Where where) {
  check_errno(pidfd_.get(), "pidfd_open", where);
  if (pid_ < 0)
    throw Error("a child process", "it has been waited for already", where);
  if (!is_readable(pidfd_.get(), limit)) // waitpid() has no time limit
    throw Error("a child process", "it does not end", where);
  int status = 0;
  check_errno(waitpid(std::exchange(pid_, -1), &status, 0), "waitpid", where);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

File make_shared_memory(const char *name, size_t length, Where where) {
  File file(
      check_errno(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd_create", where));
  check_errno(ftruncate(file.get(), static_cast<off_t>(length)), "ftruncate", where);
  check_errno(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
              "F_ADD_SEALS", where);
  return file;
}

SharedMemory::SharedMemory(int fd, size_t length) : length_(length) {
  struct stat about = {};
  check_errno(fstat(fd, &about), "fstat");
  const int seals = fcntl(fd, F_GET_SEALS); // -1 of what is no memory
  if (about.st_size != static_cast<off_t>(length) || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    throw Error("the shared memory", "its length is not the expected one, or can still change");
  data_ = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  check_errno(data_ == MAP_FAILED ? -1 : 0, "mmap");
}

SharedMemory::~SharedMemory() {
  munmap(data_, length_);
}

} // namespace rdmacommon

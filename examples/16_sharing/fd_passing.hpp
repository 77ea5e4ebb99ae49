// SPDX-License-Identifier: MIT
// 16_sharing: file descriptors that go from one process to another, over a unix socket.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

using Limit = std::chrono::milliseconds;

constexpr size_t max_files = 4;
struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(max_files * sizeof(int))> bytes{};
};

// The other process gets descriptors of its own for the same open files, whatever their numbers.
inline void send_with_files(const rdmacommon::Link &to, std::string text,
                            std::span<const int> files) {
  iovec words{.iov_base = text.data(), .iov_len = text.size()};
  Control control;
  msghdr message{.msg_iov = &words,
                 .msg_iovlen = 1,
                 .msg_control = control.bytes.data(),
                 .msg_controllen = CMSG_SPACE(files.size_bytes())};
  cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  rdmacommon::check_errno(static_cast<int>(sendmsg(to.fd(), &message, MSG_NOSIGNAL)), "sendmsg");
}

// @return what was said; exactly `files` descriptors came with it
inline std::string receive_with_files(const rdmacommon::Link &from,
                                      std::vector<rdmacommon::File> &into, size_t files,
                                      Limit limit) {
  std::array<char, 512> text{};
  iovec words{.iov_base = text.data(), .iov_len = text.size()};
  Control control;
  msghdr message{.msg_iov = &words,
                 .msg_iovlen = 1,
                 .msg_control = control.bytes.data(),
                 .msg_controllen = control.bytes.size()};
  if (!from.can_receive(limit))
    throw rdmacommon::Error("the owner", "it has not said anything in time");
  // Without the flag, a descriptor of the device's would be inherited by all that we ever start.
  const auto length = rdmacommon::check_errno(
      static_cast<int>(recvmsg(from.fd(), &message, MSG_CMSG_CLOEXEC)), "recvmsg");
  for (cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
      for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
        into.emplace_back(fd); // ours from here on, wanted or not
      }
  if (length == 0)
    throw rdmacommon::Error("the owner", "it is gone");
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || into.size() != files)
    throw rdmacommon::Error("the owner's message", "its format is wrong");
  return {text.data(), static_cast<size_t>(length)};
}

// An abstract address: no file that could be left over. It has no permissions either, hence
// is_us().
inline std::pair<sockaddr_un, socklen_t> abstract_address(const std::string &name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() > sizeof address.sun_path - 1)
    throw rdmacommon::Error("the name " + name, "it is not 1 to 107 bytes long");
  name.copy(address.sun_path + 1, name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

// [user]
inline bool is_us(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  rdmacommon::check_errno(getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size),
                          "getsockopt(SO_PEERCRED)");
  return who.uid == geteuid();
}
// [user]

inline rdmacommon::Link make_socket() {
  return rdmacommon::Link(rdmacommon::File(
      rdmacommon::check_errno(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket")));
}

inline rdmacommon::Link listen_as(const std::string &name) {
  rdmacommon::Link listener = make_socket();
  const auto [address, length] = abstract_address(name);
  const auto *where = reinterpret_cast<const sockaddr *>(&address);
  rdmacommon::check_errno(bind(listener.fd(), where, length), "bind");
  rdmacommon::check_errno(listen(listener.fd(), 4), "listen");
  return listener;
}

inline rdmacommon::Link attach_to(const std::string &name) {
  rdmacommon::Link link = make_socket();
  const auto [address, length] = abstract_address(name);
  const auto *where = reinterpret_cast<const sockaddr *>(&address);
  rdmacommon::check_errno(connect(link.fd(), where, length), "connect");
  return link;
}

// @return nothing (a link without a descriptor) if it is somebody else's
inline rdmacommon::Link accept_if_us(const rdmacommon::Link &listener) {
  rdmacommon::Link link(rdmacommon::File(
      rdmacommon::check_errno(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC), "accept4")));
  return is_us(link.fd()) ? std::move(link) : rdmacommon::Link();
}

// SPDX-License-Identifier: MIT
// 14_multicast: the address of a group, and what has to be a member: the queue pair and the host.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/handles.hpp>

#include <infiniband/verbs.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

constexpr uint32_t group_qpn = 0xffffff; // stands for "all QPs that are attached", in every group

// 239.0.0.0/8 is for whatever a site wants. @return ::ffff:239.8.8.`last`
inline ibv_gid group_gid(uint8_t last) {
  return {.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 8, 8, last}};
}

// The same address as sockets write it: a GID is an IPv6 address, and ::ffff:a.b.c.d is the IPv4
// address.
struct SocketAddress {
  explicit SocketAddress(const ibv_gid &gid) {
    if (IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr *>(gid.raw))) {
      v4.sin_family = AF_INET;
      std::memcpy(&v4.sin_addr, gid.raw + 12, sizeof v4.sin_addr);
    } else {
      v6.sin6_family = AF_INET6;
      std::memcpy(&v6.sin6_addr, gid.raw, sizeof v6.sin6_addr);
    }
  }
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6{};
  };
};

// [qp-membership]
// A queue pair's membership of groups. Must end before the queue pair does.
class QpMembership {
public:
  explicit QpMembership(ibv_qp *qp) : qp_(qp) {}
  ~QpMembership() {
    for (const ibv_gid &group : groups_)
      rdmacommon::deleters::report(ibv_detach_mcast(qp_, &group, 0), "ibv_detach_mcast");
  }
  QpMembership(const QpMembership &) = delete;
  QpMembership &operator=(const QpMembership &) = delete;

  void join(const ibv_gid &group) {
    rdmacommon::check_rc(ibv_attach_mcast(qp_, &group, 0), "ibv_attach_mcast"); // 0: no LID on RoCE
    groups_.push_back(group);
  }

private:
  ibv_qp *qp_;
  std::vector<ibv_gid> groups_;
};
// [qp-membership]

// [host-membership]
// The host is a member of an IP group while a UDP socket with this membership exists. The socket
// receives nothing itself: it is bound to no port.
class HostMembership {
public:
  HostMembership() = default;
  ~HostMembership() {
    if (socket_ >= 0)
      close(socket_);
  }
  HostMembership(const HostMembership &) = delete;
  HostMembership &operator=(const HostMembership &) = delete;

  void join(const ibv_gid &self, const ibv_gid &group) {
    if (socket_ < 0)
      socket_ = rdmacommon::check_errno(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    const ip_mreq request{.imr_multiaddr = SocketAddress(group).v4.sin_addr,
                          .imr_interface = SocketAddress(self).v4.sin_addr};
    rdmacommon::check_errno(
        setsockopt(socket_, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request),
        "setsockopt(IP_ADD_MEMBERSHIP)");
  }

private:
  int socket_ = -1;
};
// [host-membership]

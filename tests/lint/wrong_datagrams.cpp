// SPDX-License-Identifier: MIT
// Cases about datagrams: the Q_Key, and multicast groups.

#include "cases.hpp"

#include <rdmacommon/ud_queue_pair.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace cases {
namespace {

const Add qkey_differs("qkey-differs", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  const unique_qp from = open_ud_qp(pair, pair.sent.get()),
                  to = open_ud_qp(pair, pair.received.get());
  const unique_ah ah = create_ah(pair.pd.get(), pair.port, endpoint_of(to.get(), pair.port, 0));
  pair.receive(page, grh_size + 8, to.get());
  ibv_sge what = pair.at(0, 8);
  post_send(
      from.get(),
      {.sg_list = &what,
       .num_sge = 1,
       .opcode = IBV_WR_SEND,
       .send_flags = IBV_SEND_SIGNALED,
       .wr = {.ud = {.ah = ah.get(), .remote_qpn = to->qp_num, .remote_qkey = our_qkey + wrong}}});
  wait(pair.sent.get());
  if (!wrong)
    wait(pair.received.get());
});

const Add ah_destroyed_early("ah-destroyed-early", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  const unique_qp from = open_ud_qp(pair, pair.sent.get()),
                  to = open_ud_qp(pair, pair.received.get());
  unique_ah ah = create_ah(pair.pd.get(), pair.port, endpoint_of(to.get(), pair.port, 0));
  ibv_sge what = pair.at(0, 8);
  post_send(from.get(),
            {.sg_list = &what,
             .num_sge = 1,
             .opcode = IBV_WR_SEND,
             .send_flags = IBV_SEND_SIGNALED,
             .wr = {.ud = {.ah = ah.get(), .remote_qpn = to->qp_num, .remote_qkey = our_qkey}}});
  if (wrong)
    ah.reset();
  next(pair.sent.get());
});

const Add group_not_joined("group-not-joined", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  const unique_qp qp = open_ud_qp(pair, pair.received.get());
  // The right twin may run at the same time, so each has a group: 239.1.2.3 and 239.1.2.4.
  ibv_gid group{.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
  group.raw[15] += wrong;
  ip_mreq request{};
  std::memcpy(&request.imr_multiaddr, group.raw + 12, 4); // the IPv4 address in ::ffff:a.b.c.d
  std::memcpy(&request.imr_interface, pair.port.gid.gid.raw + 12, 4);
  check_rc(ibv_attach_mcast(qp.get(), &group, 0), "ibv_attach_mcast");
  const int membership = check_errno(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
  if (!wrong)
    check_errno(setsockopt(membership, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request),
                "setsockopt(IP_ADD_MEMBERSHIP)");
  ibv_wc wc{};
  check_count(ibv_poll_cq(pair.received.get(), 1, &wc), "ibv_poll_cq");
  close(membership);
  check_rc(ibv_detach_mcast(qp.get(), &group, 0), "ibv_detach_mcast");
});

} // namespace
} // namespace cases

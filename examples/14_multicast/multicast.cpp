// SPDX-License-Identifier: MIT
// 14_multicast: one SEND, and every member of a group receives it.
//
// Lesson:  lessons/14_multicast.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 14_multicast
// By hand: multicast                 the server: four members of a group, which join in two ways
//          multicast --host ADDRESS  the client, which sends to the group without being a member

#include "group.hpp"
#include "group_inbox.hpp"
#include "group_message.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/ud_queue_pair.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

using namespace rdmacommon;

namespace {

// [raw-member]
// Joins by ibv_attach_mcast, and then the host joins.
class RawMember {
public:
  RawMember(const Port &port, const ibv_gid &group)
      : inbox_(port.context.get()),
        qp_(create_ud_qp(inbox_.pd.get(), inbox_.cq.get(), inbox_.cq.get(),
                         {.max_recv_wr = 1, .max_recv_sge = 1})),
        attached_(qp_.get()) {
    ud_to_rts(qp_.get(), port, RDMA_UDP_QKEY);
    inbox_.post(qp_.get());
    attached_.join(group);
    host_.join(port.gid.gid, group);
    std::printf("joined %s by ibv_attach_mcast\n", to_text(group).c_str());
  }
  void print(const char *who, std::chrono::seconds timeout) {
    inbox_.print(qp_.get(), who, timeout);
  }

private:
  Inbox inbox_;
  unique_qp qp_;
  QpMembership attached_;
  HostMembership host_;
};
// [raw-member]

// [cm-member]
struct LeaveGroup {
  sockaddr *group = nullptr;
  void operator()(rdma_cm_id *id) const noexcept {
    deleters::report(rdma_leave_multicast(id, group), "rdma_leave_multicast");
  }
};

// Joins by rdma_cm, which sets the Q_Key, attaches the queue pair and makes the host a member. It
// opens the device by itself, so everything else is made on its context.
class CmMember {
public:
  CmMember(const Port &port, const ibv_gid &group, std::chrono::seconds timeout)
      : channel_(create_event_channel()), id_(create_bound_id(SocketAddress(port.gid.gid))),
        inbox_(id_->verbs), group_(group) {
    ibv_qp_init_attr init{.send_cq = inbox_.cq.get(),
                          .recv_cq = inbox_.cq.get(),
                          .cap = {.max_recv_wr = 1, .max_recv_sge = 1},
                          .qp_type = IBV_QPT_UD};
    check_errno(rdma_create_qp(id_.get(), inbox_.pd.get(), &init), "rdma_create_qp"); // in RTS
    qp_.reset(id_.get());
    inbox_.post(id_->qp);
    check_errno(rdma_join_multicast(id_.get(), &group_.any, nullptr), "rdma_join_multicast");
    joined_ = {id_.get(), LeaveGroup{&group_.any}}; // from now on the queue pair may be attached
    // An event reports the result. It also has the address to send to: param.ud.
    wait_for_cm_event(channel_.get(), RDMA_CM_EVENT_MULTICAST_JOIN, timeout);
    std::printf("joined %s by rdma_cm\n", to_text(group).c_str());
  }
  CmMember(const CmMember &) = delete;
  CmMember &operator=(const CmMember &) = delete;
  void print(const char *who, std::chrono::seconds timeout) { inbox_.print(id_->qp, who, timeout); }

private:
  unique_cm_id create_bound_id(SocketAddress self) {
    rdma_cm_id *id = nullptr;
    check_errno(rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_UDP), "rdma_create_id");
    unique_cm_id owner(id);
    check_errno(rdma_bind_addr(id, &self.any), "rdma_bind_addr"); // this chooses the device
    return owner;
  }

  unique_event_channel channel_;
  unique_cm_id id_;
  Inbox inbox_;
  unique_cm_qp qp_; // the id's, from its creation on
  SocketAddress group_;
  std::unique_ptr<rdma_cm_id, LeaveGroup> joined_; // goes before the queue pair
};
// [cm-member]

// [server]
void server(const Port &port, const PairOptions &options, const ibv_gid &group) {
  CmMember first(port, group, options.timeout), second(port, group, options.timeout);
  RawMember third(port, group), fourth(port, group);
  Exchange exchange(options);
  exchange.send({.qpn = group_qpn, .gid = group, .mtu = port.mtu});
  const auto limit = options.timeout / 2; // the client waits for us, and so longer than we do
  first.print("first", limit);
  second.print("second", limit);
  third.print("third", limit);
  fourth.print("fourth", limit);
  exchange.finish();
}
// [server]

// [client]
void client(const Port &port, const PairOptions &options) {
  Inbox memory(port.context.get());
  const unique_qp qp = create_ud_qp(memory.pd.get(), memory.cq.get(), memory.cq.get(),
                                    {.max_send_wr = 1, .max_send_sge = 1});
  ud_to_rts(qp.get(), port, RDMA_UDP_QKEY);
  Exchange exchange(options);
  const Endpoint group = exchange.receive();
  if (group.qpn != group_qpn)
    throw Error("the peer's address", "it is not that of a group");
  const unique_ah ah = create_ah(memory.pd.get(), port, group);
  const std::string bytes = encode("hello, all of you");
  bytes.copy(memory.memory.data(), memory.memory.size());
  ibv_sge what = piece(memory.mr.get(), memory.memory.data(), bytes.size());
  post_send(
      qp.get(),
      {.sg_list = &what,
       .num_sge = 1,
       .opcode = IBV_WR_SEND,
       .send_flags = IBV_SEND_SIGNALED,
       .wr = {.ud = {.ah = ah.get(), .remote_qpn = group_qpn, .remote_qkey = RDMA_UDP_QKEY}}});
  wait_for_completion(memory.cq.get(), "the SEND", options.timeout);
  std::printf("one datagram sent to %s\n", to_text(group.gid).c_str());
  exchange.finish();
}
// [client]

void multicast(int argc, char **argv) {
  CommandLine line{"Sends one datagram, which every member of a group receives."};
  PairOptions options{line};
  line.parse(argc, argv);
  const Port port = open_port(options);
  ibv_device_attr device{};
  check_rc(ibv_query_device(port.context.get(), &device), "ibv_query_device");
  if (device.max_mcast_grp == 0 || !port.is_roce()) {
    std::printf(
        "skipped: %s has no multicast, or is InfiniBand, where the subnet manager is asked\n",
        port.device_name().c_str());
    std::exit(77);
  }
  if (SocketAddress(port.gid.gid).any.sa_family != AF_INET)
    throw Error("the port", "its GID is no IPv4 address, and the group is one");
  if (options.is_server())
    server(port, options, group_gid(8));
  else
    client(port, options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, multicast);
}

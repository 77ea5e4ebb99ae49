// SPDX-License-Identifier: MIT
// 02_send_recv: one message each way over a reliable connection, with every verb written out.
//
// Lesson:  lessons/02_send_recv.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 02_send_recv
// By hand: send_recv                 the server; it says on which TCP port it listens
//          send_recv --host ADDRESS  the client
// The stock ibv_rc_pingpong -n 1 -s 64 -g INDEX can take either side.

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/options.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

using namespace rdmacommon;

namespace {

constexpr size_t message_size = 64;

// The two halves of one buffer: what arrives must not overwrite what is still being sent.
struct Buffer {
  char outgoing[message_size]{};
  char incoming[message_size]{};
};

// [create-qp]
unique_qp create_qp(ibv_pd *pd, ibv_cq *cq) {
  ibv_qp_init_attr attr{
      .send_cq = cq,
      .recv_cq = cq, // one CQ reports both; wr_id says which request has completed
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC, // reliable connection: in order, acknowledged, one peer
      .sq_sig_all = 0,       // a SEND reports its success only with IBV_SEND_SIGNALED
  };
  return unique_qp(check_ptr(ibv_create_qp(pd, &attr), "ibv_create_qp"));
}
// [create-qp]

// [to-init]
// RESET -> INIT: the QP belongs to a port now, and receives may be posted.
void to_init(ibv_qp *qp, const Port &port) {
  ibv_qp_attr attr{
      .qp_state = IBV_QPS_INIT,
      .qp_access_flags = 0, // the peer may not READ or WRITE our memory: lesson 04
      .pkey_index = 0,      // the default partition, the only one on RoCE
      .port_num = port.number,
  };
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  check_rc(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp(INIT)");
}
// [to-init]

// The route of packets from our port to the peer's.
ibv_ah_attr route(const Port &port, const Endpoint &peer) {
  // [route]
  ibv_ah_attr attr{.dlid = peer.lid, .port_num = port.number}; // InfiniBand's address is the LID
  if (port.is_roce()) {
    attr.is_global = 1; // on RoCE the address is the GID, and it travels in the GRH
    attr.grh = {
        .dgid = peer.gid,
        // Our own GID, by its index in our table. The peer's index may be another.
        .sgid_index = static_cast<uint8_t>(port.gid.gid_index),
        .hop_limit = 64,                     // routers that a packet may cross
        .traffic_class = port.traffic_class, // switches choose a queue by it
    };
  }
  // [route]
  return attr;
}

// INIT -> RTR: from here on the QP takes packets, from exactly one peer.
void to_rtr(ibv_qp *qp, const Port &port, const Endpoint &peer) {
  // [to-rtr]
  ibv_qp_attr attr{
      .qp_state = IBV_QPS_RTR,
      .path_mtu = std::min(port.mtu, peer.mtu), // the largest payload of a packet
      .rq_psn = peer.psn,                       // the PSN that the peer's first packet carries
      .dest_qp_num = peer.qpn,
      .ah_attr = route(port, peer),
      .max_dest_rd_atomic = 1, // READs and atomics of the peer that we serve at a time
      .min_rnr_timer = 12,     // code for 0.64 ms: how long the peer waits after an RNR NAK
  };
  // [to-rtr]
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  check_rc(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp(RTR)");
}

// [to-rts]
// RTR -> RTS: the QP may send as well.
void to_rts(ibv_qp *qp, uint32_t psn) {
  ibv_qp_attr attr{
      .qp_state = IBV_QPS_RTS,
      .sq_psn = psn,      // the number of our first packet; the exchange has told it to the peer
      .max_rd_atomic = 1, // READs and atomics of ours that may be under way
      .timeout = 14,      // code for 4.096 us * 2^14 = 67 ms; then, without an ACK, send again
      .retry_cnt = 6,     // so many times, then IBV_WC_RETRY_EXC_ERR; rxe takes 7 for "forever"
      .rnr_retry = 6,     // the same for "no receive posted"; 7 would mean forever
  };
  const int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
                   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  check_rc(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp(RTS)");
}
// [to-rts]

// [wr-id]
// The values of wr_id. The completion brings the value back, and only our program gives it a
// meaning. Each request is one bit, so that an integer can hold a set of them.
enum Request : uint64_t { receive_request = 1, send_request = 2 };
// [wr-id]

// [post-recv]
void post_receive(ibv_qp *qp, ibv_mr *mr, Buffer &buffer) {
  ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(buffer.incoming),
              .length = message_size,
              .lkey = mr->lkey}; // our NIC checks that this region is ours
  ibv_recv_wr request{.wr_id = receive_request, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr *refused = nullptr;
  check_rc(ibv_post_recv(qp, &request, &refused), "ibv_post_recv");
}
// [post-recv]

void post_send(ibv_qp *qp, ibv_mr *mr, Buffer &buffer) {
  ibv_sge what{.addr = reinterpret_cast<uintptr_t>(buffer.outgoing),
               .length = message_size,
               .lkey = mr->lkey};
  // [post-send]
  ibv_send_wr request{.wr_id = send_request,
                      .sg_list = &what,
                      .num_sge = 1,
                      .opcode = IBV_WR_SEND,
                      .send_flags = IBV_SEND_SIGNALED}; // tell us when it has been acknowledged
  ibv_send_wr *refused = nullptr;
  check_rc(ibv_post_send(qp, &request, &refused), "ibv_post_send");
  // [post-send]
}

// [poll]
// Polls until `wanted` has completed. The NIC puts completions into the CQ by itself; ibv_poll_cq
// only checks whether there is one. A SEND and a receive may complete in either order. `completed`
// is the set of those that have.
void wait_for(ibv_cq *cq, Request wanted, uint64_t &completed, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!(completed & wanted)) {
    ibv_wc completion{};
    if (check_count(ibv_poll_cq(cq, 1, &completion), "ibv_poll_cq") == 1) {
      check_wc(completion, completion.wr_id == send_request ? "the SEND" : "the receive");
      completed |= completion.wr_id;
    } else if (std::chrono::steady_clock::now() > deadline) {
      throw Error(wanted == send_request ? "the SEND" : "the receive",
                  "no completion within " + std::to_string(timeout.count()) + " s");
    }
  }
}
// [poll]

void send_recv(int argc, char **argv) {
  CommandLine line{"Sends a message of 64 bytes to the other side and receives one."};
  PairOptions options{line};
  std::string text;
  bool stock_peer = false;
  line.add("--message", text, "what to send, up to 63 bytes [a greeting]", message_size - 1);
  line.add("--stock-peer", stock_peer, "client: the server is an ibv_rc_pingpong");
  line.parse(argc, argv);
  if (text.empty())
    text = options.is_server() ? "hello from the server" : "hello from the client";

  // Each object is made from the objects above it. They are destroyed in the reverse order.
  const Port port = open_port(options);
  Buffer buffer;
  text.copy(buffer.outgoing, message_size - 1);
  // [objects]
  const unique_pd pd(check_ptr(ibv_alloc_pd(port.context.get()), "ibv_alloc_pd"));
  const int access = IBV_ACCESS_LOCAL_WRITE; // our own NIC writes what arrives
  const unique_mr mr(check_ptr(ibv_reg_mr(pd.get(), &buffer, sizeof buffer, access), "ibv_reg_mr"));
  const unique_cq cq(check_ptr(ibv_create_cq(port.context.get(), 2, nullptr, nullptr, 0),
                               "ibv_create_cq")); // 2: at most one SEND and one receive are out
  const unique_qp qp = create_qp(pd.get(), cq.get());
  // [objects]
  std::printf("%s port %d: QP in RESET\n", port.device_name().c_str(), port.number);

  to_init(qp.get(), port);
  std::printf("QP in INIT\n");
  // [before-exchange]
  // Before the peer learns our QP number: a SEND that finds no posted receive is RNR-NAKed,
  // and once rnr_retry runs out it breaks the sender's QP.
  post_receive(qp.get(), mr.get(), buffer);
  std::printf("receive posted\n");
  // [before-exchange]

  const Endpoint self{.lid = port.attr.lid,
                      .qpn = qp->qp_num,
                      .psn = random_psn(),
                      .gid = port.gid.gid,
                      .mtu = port.mtu};
  Exchange exchange(options);
  if (stock_peer)
    exchange.peer_is_stock();
  // [exchange]
  if (!options.is_server())
    exchange.send(self); // the client speaks first, as ibv_rc_pingpong's does
  const Endpoint peer = exchange.receive();
  std::printf("me    %s\npeer  %s\n", to_line(self).c_str(), to_line(peer).c_str());
  to_rtr(qp.get(), port, peer);
  std::printf("QP in RTR\n");
  to_rts(qp.get(), self.psn);
  std::printf("QP in RTS\n");
  if (options.is_server()) {
    exchange.send(self); // only now: a peer that has our address may send at once
    exchange.receive_done();
  } else {
    exchange.send_done();
  }
  // [exchange]

  uint64_t completed = 0;
  const auto send = [&] {
    post_send(qp.get(), mr.get(), buffer);
    wait_for(cq.get(), send_request, completed, options.timeout);
    std::printf("sent \"%.*s\"\n", static_cast<int>(message_size), buffer.outgoing);
  };
  const auto receive = [&] {
    wait_for(cq.get(), receive_request, completed, options.timeout);
    std::printf("received \"%.*s\"\n", static_cast<int>(message_size), buffer.incoming);
  };
  // [traffic]
  if (options.is_server()) {
    receive();
    send();
  } else {
    send();
    receive();
  }
  // Wait until the peer has finished: our QP must live to acknowledge the peer's message.
  exchange.finish();
  // [traffic]
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, send_recv);
}

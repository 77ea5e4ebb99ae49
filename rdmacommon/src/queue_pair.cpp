// SPDX-License-Identifier: MIT
#include "rdmacommon/queue_pair.hpp"

#include "rdmacommon/check.hpp"

#include <algorithm>
#include <array>

namespace rdmacommon {

unique_qp create_rc_qp(ibv_pd *pd, ibv_cq *cq, const ibv_qp_cap &cap, Where where) {
  return create_rc_qp(pd, cq, cq, cap, where);
}

unique_qp create_rc_qp(ibv_pd *pd, ibv_cq *send_cq, ibv_cq *recv_cq, const ibv_qp_cap &cap,
                       Where where) {
  return create_rc_qp(pd, send_cq, recv_cq, nullptr, cap, where);
}

unique_qp create_rc_qp(ibv_pd *pd, ibv_cq *send_cq, ibv_cq *recv_cq, ibv_srq *srq,
                       const ibv_qp_cap &cap, Where where) {
  ibv_qp_init_attr attr{
      .send_cq = send_cq,
      .recv_cq = recv_cq,
      .srq = srq,
      .cap = cap,
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 0,
  };
  return unique_qp(check_ptr(ibv_create_qp(pd, &attr), "ibv_create_qp", where));
}

ibv_ah_attr route_to(const Port &port, const Endpoint &peer) {
  ibv_ah_attr attr{.dlid = peer.lid, .port_num = port.number};
  if (port.is_roce()) {
    attr.is_global = 1;
    attr.grh = {.dgid = peer.gid,
                .sgid_index = static_cast<uint8_t>(port.gid.gid_index),
                .hop_limit = 64,
                .traffic_class = port.traffic_class};
  }
  return attr;
}

Endpoint endpoint_of(const ibv_qp *qp, const Port &port, uint32_t psn) {
  return {
      .lid = port.attr.lid, .qpn = qp->qp_num, .psn = psn, .gid = port.gid.gid, .mtu = port.mtu};
}

void to_init(ibv_qp *qp, const Port &port, unsigned access, Where where) {
  ibv_qp_attr attr{
      .qp_state = IBV_QPS_INIT,
      .qp_access_flags = access,
      .pkey_index = 0,
      .port_num = port.number,
  };
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  check_rc(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp(INIT)", where);
}

void to_rtr(ibv_qp *qp, const Port &port, const Endpoint &peer, uint8_t max_dest_rd_atomic,
            Where where) {
  ibv_qp_attr attr{
      .qp_state = IBV_QPS_RTR,
      .path_mtu = std::min(port.mtu, peer.mtu),
      .rq_psn = peer.psn,
      .dest_qp_num = peer.qpn,
      .ah_attr = route_to(port, peer),
      .max_dest_rd_atomic = max_dest_rd_atomic,
      .min_rnr_timer = 12,
  };
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  check_rc(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp(RTR)", where);
}

void to_rts(ibv_qp *qp, uint32_t psn, uint8_t max_rd_atomic, Where where) {
  ibv_qp_attr attr{
      .qp_state = IBV_QPS_RTS,
      .sq_psn = psn,
      .max_rd_atomic = max_rd_atomic,
      .timeout = 14,
      .retry_cnt = 6, // rxe takes 7, the largest, for "forever"
      .rnr_retry = 6,
  };
  const int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
                   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  check_rc(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp(RTS)", where);
}

void to_error(ibv_qp *qp, Where where) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  check_rc(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp(ERR)", where);
}

void connect_to_itself(ibv_qp *qp, const Port &port, unsigned access, Where where) {
  const Endpoint self = endpoint_of(qp, port, random_psn());
  to_init(qp, port, access, where);
  to_rtr(qp, port, self, 1, where);
  to_rts(qp, self.psn, 1, where);
}

const char *state_of(ibv_qp *qp, Where where) {
  constexpr std::array names{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  check_rc(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp", where);
  return attr.qp_state < names.size() ? names[attr.qp_state] : "unknown";
}

namespace {

// The order in which the two sides exchange their endpoints and connect.
template <typename Send, typename Receive>
void connect(ibv_qp *qp, const Port &port, Exchange &exchange, const PairOptions &options,
             Send send, Receive receive, Where where) {
  const Endpoint self = endpoint_of(qp, port, random_psn());
  if (!options.is_server())
    send(self);
  const Endpoint peer = receive();
  to_rtr(qp, port, peer, options.max_rd_atomic, where);
  to_rts(qp, self.psn, options.max_rd_atomic, where);
  if (options.is_server()) {
    send(self);
    exchange.receive_done(where);
  } else {
    exchange.send_done(where);
  }
}

} // namespace

void connect(ibv_qp *qp, const Port &port, Exchange &exchange, const PairOptions &options,
             Where where) {
  connect(
      qp, port, exchange, options, [&](const Endpoint &self) { exchange.send(self, where); },
      [&] { return exchange.receive(where); }, where);
}

RemoteMemory connect(ibv_qp *qp, const Port &port, Exchange &exchange, const PairOptions &options,
                     const RemoteMemory &mine, Where where) {
  RemoteMemory theirs{};
  connect(
      qp, port, exchange, options, [&](const Endpoint &self) { exchange.send(self, mine, where); },
      [&] { return exchange.receive(theirs, where); }, where);
  return theirs;
}

} // namespace rdmacommon

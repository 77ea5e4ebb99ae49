// SPDX-License-Identifier: MIT
#include "rdmacommon/ud_queue_pair.hpp"

#include "rdmacommon/check.hpp"
#include "rdmacommon/queue_pair.hpp"

namespace rdmacommon {

unique_qp create_ud_qp(ibv_pd *pd, ibv_cq *sent, ibv_cq *received, const ibv_qp_cap &cap,
                       Where where) {
  ibv_qp_init_attr attr{.send_cq = sent, .recv_cq = received, .cap = cap, .qp_type = IBV_QPT_UD};
  return unique_qp(check_ptr(ibv_create_qp(pd, &attr), "ibv_create_qp", where));
}

void ud_to_rts(ibv_qp *qp, const Port &port, uint32_t qkey, Where where) {
  ibv_qp_attr attr{
      .qp_state = IBV_QPS_INIT, .qkey = qkey, .pkey_index = 0, .port_num = port.number};
  check_rc(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
           "ibv_modify_qp(INIT)", where);
  attr.qp_state = IBV_QPS_RTR;
  check_rc(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp(RTR)", where);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 0;
  check_rc(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "ibv_modify_qp(RTS)", where);
}

unique_ah create_ah(ibv_pd *pd, const Port &port, const Endpoint &peer, Where where) {
  ibv_ah_attr attr = route_to(port, peer);
  return unique_ah(check_ptr(ibv_create_ah(pd, &attr), "ibv_create_ah", where));
}

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// What a program reads of a completion: of a failed one if `wrong`. test_lint.py's Poison.

#include "cases.hpp"

#include <cstdio>

namespace cases {
namespace {

void show(const Pair &pair, bool failed, std::uint32_t byte_len, std::uint32_t qp_num) {
  std::printf("%s, byte_len %u, qp_num %s\n", failed ? "failed" : "worked", byte_len,
              qp_num == pair.b->qp_num ? "right" : "wrong");
}

// Makes the receive that is posted to b complete.
void complete(const Pair &pair, bool wrong) {
  ibv_qp_attr attr{.qp_state = IBV_QPS_ERR};
  if (wrong)
    check_rc(ibv_modify_qp(pair.b.get(), &attr, IBV_QP_STATE), "ibv_modify_qp(ERR)");
  else
    pair.send();
}

const Add by_poll_cq("completion, ibv_poll_cq", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive();
  complete(pair, wrong);
  const ibv_wc wc = next(pair.received.get());
  show(pair, wc.status != IBV_WC_SUCCESS, wc.byte_len, wc.qp_num);
});

const Add by_start_poll("completion, ibv_start_poll", [](const DeviceOptions &options, bool wrong) {
  const Shape shape{.connected = false};
  Pair pair(options, shape);
  ibv_cq_init_attr_ex attr{.cqe = 4, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM};
  ibv_cq_ex *cq = check_ptr(ibv_create_cq_ex(pair.port.context.get(), &attr), "ibv_create_cq_ex");
  pair.b.reset();
  pair.received.reset(ibv_cq_ex_to_cq(cq));
  pair.b = create_rc_qp(pair.pd.get(), pair.received.get(), pair.received.get(), shape.cap);
  pair.connect(shape);
  pair.receive();
  complete(pair, wrong);
  ibv_poll_cq_attr none{};
  int rc = ENOENT;
  while (rc == ENOENT)
    rc = ibv_start_poll(cq, &none);
  check_rc(rc, "ibv_start_poll");
  show(pair, cq->status != IBV_WC_SUCCESS, ibv_wc_read_byte_len(cq), ibv_wc_read_qp_num(cq));
  ibv_end_poll(cq);
});

} // namespace
} // namespace cases

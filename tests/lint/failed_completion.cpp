// SPDX-License-Identifier: MIT
// Prints the members of a completion for test_lint.py's test_poison: of a failed one if `wrong`.

#include "cases.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cases {
namespace {

void show(const Pair &pair, const ibv_wc &wc) {
  const auto is_overwritten = [](auto value) {
    decltype(value) nonsense;
    std::memset(&nonsense, 0xa5, sizeof nonsense);
    return value == nonsense;
  };
  const int overwritten =
      is_overwritten(static_cast<unsigned>(wc.opcode)) + is_overwritten(wc.byte_len) +
      is_overwritten(wc.imm_data) + is_overwritten(wc.src_qp) + is_overwritten(wc.wc_flags) +
      is_overwritten(wc.slid) + is_overwritten(wc.sl) + is_overwritten(wc.dlid_path_bits);
  std::printf("status %d, wr_id %llu, %s number, %d of 8 are 0xa5, byte_len %u\n", wc.status,
              static_cast<unsigned long long>(wc.wr_id),
              wc.qp_num == pair.b->qp_num ? "the QP's" : "another", overwritten, wc.byte_len);
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
  show(pair, next(pair.received.get()));
});

const Add by_start_poll("completion, ibv_start_poll", [](const DeviceOptions &options, bool wrong) {
  const Shape shape{.connected = false};
  Pair pair(options, shape);
  ibv_cq_init_attr_ex attr{.cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS};
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
  show(pair, {.wr_id = cq->wr_id,
              .status = cq->status,
              .opcode = ibv_wc_read_opcode(cq),
              .byte_len = ibv_wc_read_byte_len(cq),
              .imm_data = ibv_wc_read_imm_data(cq),
              .qp_num = ibv_wc_read_qp_num(cq),
              .src_qp = ibv_wc_read_src_qp(cq),
              .wc_flags = ibv_wc_read_wc_flags(cq),
              .slid = static_cast<std::uint16_t>(ibv_wc_read_slid(cq)),
              .sl = ibv_wc_read_sl(cq),
              .dlid_path_bits = ibv_wc_read_dlid_path_bits(cq)});
  ibv_end_poll(cq);
});

} // namespace
} // namespace cases

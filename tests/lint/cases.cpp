// SPDX-License-Identifier: MIT
// Runs one of the cases: lint_cases --case NAME [--wrong].

#include "cases.hpp"

#include <rdmacommon/options.hpp>
#include <rdmacommon/ud_queue_pair.hpp>

#include <fstream>
#include <iterator>

namespace cases {

std::map<std::string, Case> &all() {
  static std::map<std::string, Case> cases;
  return cases;
}

Pair::Pair(const DeviceOptions &options, const Shape &shape)
    : port(open_port(options)), pd(alloc_pd(port.context.get())),
      buffer(static_cast<char *>(std::aligned_alloc(page, 2 * page)), std::free),
      mr(reg_mr(pd.get(), buffer.get(), 2 * page, static_cast<int>(shape.access))) {
  if (shape.with_channel)
    channel.reset(
        check_ptr(ibv_create_comp_channel(port.context.get()), "ibv_create_comp_channel"));
  sent = create_cq(port.context.get(), shape.cqe);
  received = create_cq(port.context.get(), shape.cqe, channel.get());
  a = create_rc_qp(pd.get(), sent.get(), sent.get(), shape.cap);
  b = create_rc_qp(pd.get(), received.get(), received.get(), shape.cap);
  std::fill(buffer.get(), buffer.get() + 2 * page, 'x');
  if (shape.connected)
    connect(shape);
}

void Pair::connect(const Shape &shape) {
  for (ibv_qp *qp : {a.get(), b.get()})
    to_init(qp, port, shape.qp_access);
  for (ibv_qp *qp : {a.get(), b.get()}) {
    ibv_qp *peer = qp == a.get() ? b.get() : a.get();
    const bool first = qp == a.get();
    ibv_qp_attr attr{.qp_state = IBV_QPS_RTR,
                     .path_mtu = port.mtu,
                     .rq_psn = 7,
                     .dest_qp_num = peer->qp_num,
                     .ah_attr = route_to(port, endpoint_of(peer, port, 7)),
                     .max_dest_rd_atomic = 1,
                     .min_rnr_timer = 12};
    if (shape.to_rtr)
      shape.to_rtr(first, attr);
    check_rc(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             "ibv_modify_qp(RTR)");
    attr = {.qp_state = IBV_QPS_RTS,
            .sq_psn = 7,
            .max_rd_atomic = 1,
            .timeout = 10,
            .retry_cnt = 3,
            .rnr_retry = 3};
    if (shape.to_rts)
      shape.to_rts(first, attr);
    check_rc(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
             "ibv_modify_qp(RTS)");
  }
}

void Pair::receive(std::size_t offset, std::uint32_t length, ibv_qp *qp) const {
  ibv_sge where = at(offset, length);
  post_recv(qp ? qp : b.get(), {.wr_id = 1, .sg_list = &where, .num_sge = 1});
}

void Pair::send(unsigned flags, std::uint32_t length) const {
  ibv_sge what = at(0, length);
  post_send(
      a.get(),
      {.wr_id = 2, .sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags});
}

void Pair::write(std::uint32_t rkey, std::uint64_t address, ibv_wr_opcode opcode,
                 ibv_qp *qp) const {
  ibv_sge what = at(0, 8);
  post_send(qp ? qp : a.get(), {.wr_id = 3,
                                .sg_list = &what,
                                .num_sge = 1,
                                .opcode = opcode,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr = {.rdma = {.remote_addr = address, .rkey = rkey}}});
}

unique_qp open_ud_qp(const Pair &pair, ibv_cq *cq) {
  unique_qp qp =
      create_ud_qp(pair.pd.get(), cq, cq,
                   {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1});
  ud_to_rts(qp.get(), pair.port, our_qkey);
  return qp;
}

unique_qp create_extended_qp(ibv_pd *pd, ibv_cq *cq) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {.max_send_wr = 1,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  attr.qp_type = IBV_QPT_UD;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  return unique_qp(check_ptr(ibv_create_qp_ex(pd->context, &attr), "ibv_create_qp_ex"));
}

bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return text.find(") S ") != std::string::npos;
}

ibv_wc next(ibv_cq *cq) {
  const auto wc = poll_within(cq, 30s);
  if (!wc)
    throw Error("the case", "no completion");
  return *wc;
}

void wait(ibv_cq *cq) {
  check_wc(next(cq), "the request");
}

} // namespace cases

namespace {

void lint_cases(int argc, char **argv) {
  rdmacommon::CommandLine line("One of the programs that are made wrong on purpose.");
  rdmacommon::DeviceOptions options(line);
  std::string name;
  bool wrong = false;
  std::vector<std::string> names;
  for (const auto &[known, run] : cases::all())
    names.push_back(known);
  line.add("--case", name, "the rule", names);
  line.add("--wrong", wrong, "do it wrong");
  line.parse(argc, argv);
  cases::all().at(name)(options, wrong);
}

} // namespace

int main(int argc, char **argv) {
  return rdmacommon::run_main(argc, argv, lint_cases);
}

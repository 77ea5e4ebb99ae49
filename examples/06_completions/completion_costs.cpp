// SPDX-License-Identifier: MIT
// 06_completions: the cost of each way to wait for a message, and to learn that messages are sent.
//
// Lesson:  lessons/completion_costs.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 06_completions --program completion_costs
// By hand: completion_costs                 the server, which receives
//          completion_costs --host ADDRESS  the client, which sends

#include "measure.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>

using namespace rdmacommon;

namespace {

// [create]
// A provider without the extended interfaces returns EOPNOTSUPP.
template <typename T> T *extended(T *object, const char *call) {
  if (object == nullptr && errno == EOPNOTSUPP)
    throw Unsupported(std::string("this device has no ") + call);
  return check_ptr(object, call);
}

// The program says beforehand which fields of a completion it will read.
ibv_cq_ex *create_cq_ex(ibv_context *device, ibv_comp_channel *channel) {
  ibv_cq_init_attr_ex attr{
      .cqe = queue_depth, .channel = channel, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
  return extended(ibv_create_cq_ex(device, &attr), "ibv_create_cq_ex");
}

// The program says beforehand which kinds of requests it will build in the send queue.
ibv_qp *create_qp(ibv_context *device, ibv_pd *pd, ibv_cq *sent, ibv_cq *received) {
  ibv_qp_init_attr_ex attr{.send_cq = sent,
                           .recv_cq = received,
                           .cap = {.max_send_wr = queue_depth, .max_recv_wr = queue_depth},
                           .qp_type = IBV_QPT_RC,
                           .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                           .pd = pd,
                           .send_ops_flags = IBV_QP_EX_WITH_SEND};
  return extended(ibv_create_qp_ex(device, &attr), "ibv_create_qp_ex");
}
// [create]

// [in-place]
// The client builds four requests in its send queue. The server reads four completions in its CQ.
void in_place(const Side &side) {
  constexpr int messages = 4;
  if (!side.is_server) {
    side.exchange.receive_done();
    build(side, messages);
    side.wait_sent();
    side.exchange.send_done();
    std::printf("built %d requests, and polled one completion\n", messages);
    return;
  }
  side.post_receives(messages);
  side.exchange.send_done();
  side.exchange.receive_done();
  ibv_cq_ex *cq = side.extended;
  ibv_poll_cq_attr none{};
  std::array<ibv_wc, messages> done{};
  const Deadline deadline(side.timeout);
  for (int count = 0; count < messages;) { // the word over TCP may come before a completion
    int rc = ibv_start_poll(cq, &none);
    if (rc == ENOENT) {
      deadline.check("a completion");
      continue;
    }
    check_rc(rc, "ibv_start_poll");
    do {
      done[count++] = {.status = cq->status,                  // status and wr_id are fields,
                       .byte_len = ibv_wc_read_byte_len(cq)}; // the others are read on request
    } while (count < messages && (rc = ibv_next_poll(cq)) == 0);
    ibv_end_poll(cq); // before anything can throw: until here, mlx5 holds the CQ's lock
    if (rc != ENOENT)
      check_rc(rc, "ibv_next_poll");
  }
  for (int i = 0; i < messages; ++i) {
    check_wc(done[i], "a receive");
    std::printf("in place:       message %d, %u bytes\n", i + 1, done[i].byte_len);
  }
}
// [in-place]

void completion_costs(int argc, char **argv) {
  CommandLine line{"Measures what each way to wait, and each way to send, costs."};
  PairOptions options{line};
  int milliseconds = 20;
  line.add("--measure", milliseconds,
           "ms for each way and turn, as on the other side, or 0: do not measure [20]", 0, 1000);
  line.parse(argc, argv);

  const Port port = open_port(options);
  ibv_context *device = port.context.get();
  const unique_pd pd = alloc_pd(device);
  const unique_comp_channel channel = create_channel(device);
  const unique_cq sent = create_cq(device, queue_depth);
  ibv_cq_ex *const received_ex = create_cq_ex(device, channel.get());
  const unique_cq received(ibv_cq_ex_to_cq(received_ex)); // the same object, for the other verbs
  const unique_qp qp(create_qp(device, pd.get(), sent.get(), received.get()));
  to_init(qp.get(), port);
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);
  const Sleep sleep(device, channel.get());
  const Side side{options.is_server(), options.timeout, exchange, channel.get(), sleep,
                  received.get(),      sent.get(),      qp.get(), received_ex};
  in_place(side);
  if (milliseconds > 0) {
    measure_waiting(side, milliseconds);
    measure_sending(side, milliseconds);
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, completion_costs);
}

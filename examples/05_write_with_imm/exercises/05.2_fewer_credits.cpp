// SPDX-License-Identifier: MIT
// Exercise 05.2 (★★): fewer messages that only say "go on".
// Wanted:   thirty-two numbers go over as before, one in each message, and in order; but the server
//           gives its credits four at a time, so that eight of its messages do instead of
//           thirty-two.
// Hints: ./lab hint 05.2
// Check: ./lab check 05.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr uint32_t numbers = 32, slot_count = 8;
using Slots = std::array<uint32_t, slot_count>;

struct Side {
  ibv_qp *qp;
  ibv_cq *send_cq, *recv_cq;
  ibv_mr *mr;
  Slots &slots;
  RemoteMemory theirs;
  std::chrono::seconds timeout;
};

void server(const Side &side) {
  uint32_t sum = 0, credit_messages = 0;
  for (uint32_t next = 0; next < numbers; ++next) {
    const ibv_wc wc = wait_for_completion(side.recv_cq, "the next number", side.timeout);
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || from_immediate(wc.imm_data).first != next)
      throw Error("the message", "is not the next number");
    sum += side.slots[next % slot_count];
    post_recv(side.qp, {});
    // TODO: a message for each number.
    post_send(side.qp, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                        .send_flags = IBV_SEND_SIGNALED,
                        .imm_data = to_immediate({.first = next, .count = 1})});
    wait_for_completion(side.send_cq, "the credit", side.timeout);
    ++credit_messages;
  }
  std::printf("the sum is %u, credits went in %u messages\n", sum, credit_messages);
}

void client(const Side &side) {
  uint32_t credits = slot_count;
  const auto take_credits = [&] {
    const ibv_wc wc = wait_for_completion(side.recv_cq, "credits", side.timeout);
    const uint32_t count = from_immediate(wc.imm_data).count;
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || count == 0 || count > slot_count - credits)
      throw Error("the message", "gives no credits that there can be");
    credits += count;
    post_recv(side.qp, {});
  };
  for (uint32_t next = 0; next < numbers; ++next) {
    while (credits == 0)
      take_credits();
    --credits;
    uint32_t &slot = side.slots[next % slot_count];
    slot = next * next;
    ibv_sge number = piece(side.mr, &slot, sizeof slot);
    const uint64_t there = side.theirs.address + next % slot_count * sizeof slot;
    post_send(side.qp, {.sg_list = &number,
                        .num_sge = 1,
                        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                        .send_flags = IBV_SEND_SIGNALED,
                        .imm_data = to_immediate({.first = next, .count = 1}),
                        .wr = {.rdma = {.remote_addr = there, .rkey = side.theirs.rkey}}});
    wait_for_completion(side.send_cq, "the number", side.timeout);
  }
  while (credits < slot_count)
    take_credits();
  std::printf("all %u numbers have been taken\n", numbers);
}

void fewer_credits(int argc, char **argv) {
  CommandLine line{"Sends numbers, with credits."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  Slots slots{};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &slots, sizeof slots, access);
  const unique_cq send_cq = create_cq(port.context.get(), 1);
  const unique_cq recv_cq = create_cq(port.context.get(), slot_count);
  const unique_qp qp =
      create_rc_qp(pd.get(), send_cq.get(), recv_cq.get(),
                   {.max_send_wr = 1, .max_recv_wr = slot_count, .max_send_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
  for (uint32_t i = 0; i < slot_count; ++i)
    post_recv(qp.get(), {});
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));
  const Side side{qp.get(), send_cq.get(), recv_cq.get(), mr.get(), slots, theirs, options.timeout};
  if (options.is_server())
    server(side);
  else
    client(side);
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, fewer_credits);
}

// SPDX-License-Identifier: MIT
// Exercise 05.1 (★): sixteen mailboxes, one doorbell.
// Wanted:   the client puts a letter into the server's mailbox 7. The server prints the mailbox's
//           number and the letter. It does not look into the other mailboxes.
// Hints: ./lab hint 05.1
// Check: ./lab check 05.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <array>
#include <cstdio>
#include <cstring>

using namespace rdmacommon;

namespace {

using Mailboxes = std::array<std::array<char, 64>, 16>;

void doorbell(int argc, char **argv) {
  CommandLine line{"Puts a letter into a mailbox."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  Mailboxes boxes{};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &boxes, sizeof boxes, access);
  const unique_cq cq = create_cq(port.context.get(), 2);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
  if (options.is_server())
    post_recv(qp.get(), {});
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));

  if (options.is_server()) {
    const ibv_wc wc = wait_for_completion(cq.get(), "the doorbell", options.timeout);
    const uint32_t number = ntohl(wc.imm_data);
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || number >= boxes.size())
      throw Error("the doorbell", "it names no mailbox");
    std::printf("mailbox %u: \"%.64s\"\n", number, boxes[number].data());
  } else {
    const uint32_t number = 7;
    auto &box = boxes[number];
    std::strcpy(box.data(), "come as soon as you can");
    ibv_sge letter = piece(mr.get(), box.data(), box.size());
    const uint64_t there = theirs.address + number * box.size();
    // TODO: the letter arrives, and nobody notices.
    post_send(qp.get(), {.sg_list = &letter,
                         .num_sge = 1,
                         .opcode = IBV_WR_RDMA_WRITE,
                         .send_flags = IBV_SEND_SIGNALED,
                         .wr = {.rdma = {.remote_addr = there, .rkey = theirs.rkey}}});
    wait_for_completion(cq.get(), "the letter", options.timeout);
    std::printf("the letter is in mailbox %u\n", number);
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, doorbell);
}

// SPDX-License-Identifier: MIT
// Exercise 04.2 (★★): follow a linked list that lies in the other side's memory.
// Wanted:   the client prints the texts of all nodes, in the order of the list, a line each. A list
//           that leads outside the memory, or in a circle, is an error (the check has none of
//           these).
// Hints: ./lab hint 04.2
// Check: ./lab check 04.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

struct Node {
  uint32_t next; // network byte order
  char text[28];
};
using Nodes = std::array<Node, 6>;

void linked_list(int argc, char **argv) {
  CommandLine line{"Reads a linked list."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  Nodes nodes{};
  const auto at = [](size_t number) { return htonl(static_cast<uint32_t>(number * sizeof(Node))); };
  if (options.is_server())
    nodes = {{{at(3), "the first node"},
              {at(5), "the third"},
              {at(2), "in no list"},
              {at(1), "the second"},
              {at(4), "in no list"},
              {0, "the last"}}};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  const unique_mr mr = reg_mr(pd.get(), &nodes, sizeof nodes, access);
  const unique_cq cq = create_cq(port.context.get(), 1);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_send_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_READ);
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));

  if (options.is_server()) {
    exchange.receive_done();
  } else {
    Node &node = nodes[0];
    ibv_sge here = piece(mr.get(), &node, sizeof node);
    // TODO: this is the first node; where are the others?
    post_send(qp.get(), {.sg_list = &here,
                         .num_sge = 1,
                         .opcode = IBV_WR_RDMA_READ,
                         .send_flags = IBV_SEND_SIGNALED,
                         .wr = {.rdma = {.remote_addr = theirs.address, .rkey = theirs.rkey}}});
    wait_for_completion(cq.get(), "the READ", options.timeout);
    std::printf("%.28s\n", node.text);
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, linked_list);
}

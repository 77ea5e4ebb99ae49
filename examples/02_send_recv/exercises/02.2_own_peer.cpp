// SPDX-License-Identifier: MIT
// Exercise 02.2 (★★★): a queue pair that is its own peer.
// Wanted:   the states RESET, INIT, RTR and RTS as ibv_query_qp(3) reports them, then
//           a message that the QP has sent to itself.
// Hints: ./lab hint 02.2
// Check: ./lab check 02.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdio>

using namespace rdmacommon;

namespace {

void print_state(ibv_qp *qp) {
  // TODO: ask the QP for its state; a value of ibv_qp_state is an index into this list.
  static const char *const names[] = {"RESET", "INIT", "RTR", "RTS"};
  (void)qp;
  std::printf("state %s\n", names[0]);
}

void own_peer(int argc, char **argv) {
  CommandLine line{"A queue pair sends itself a message."};
  DeviceOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  struct {
    char outgoing[32] = "a message to myself";
    char incoming[32] = "nothing";
  } buffer;
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &buffer, sizeof buffer, access);
  const unique_cq cq = create_cq(port.context.get(), 2);
  const ibv_qp_cap room{.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), room);
  print_state(qp.get());
  to_init(qp.get(), port);
  print_state(qp.get());

  ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(buffer.incoming),
              .length = sizeof buffer.incoming,
              .lkey = mr->lkey};
  ibv_recv_wr receive{.sg_list = &sge, .num_sge = 1};
  ibv_recv_wr *refused_receive = nullptr;
  check_rc(ibv_post_recv(qp.get(), &receive, &refused_receive), "ibv_post_recv");

  // TODO: go on to RTR and RTS, printing each state, SEND buffer.outgoing, and wait for both
  // completions.

  std::printf("received %s\n", buffer.incoming);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, own_peer);
}

// SPDX-License-Identifier: MIT
// Exercise 03.1 (★): one message instead of three.
// Wanted:   the client SENDs the three parts as one message, without copying a byte; the server
//           prints "RDMA by Example".
// Hints: ./lab hint 03.1
// Check: ./lab check 03.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

void one_message(int argc, char **argv) {
  CommandLine line{"Sends three parts."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  std::array<std::array<char, 32>, 3> parts{{{"RDMA "}, {"by "}, {"Example"}}};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &parts, sizeof parts, access);
  const unique_cq cq = create_cq(port.context.get(), 4);
  // TODO: is one element enough?
  const ibv_qp_cap room{.max_send_wr = 3, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), room);
  to_init(qp.get(), port);
  if (options.is_server()) {
    parts = {};
    ibv_sge sge = piece(mr.get(), parts[0].data(), parts[0].size());
    post_recv(qp.get(), {.sg_list = &sge, .num_sge = 1});
  }
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);

  if (options.is_server()) {
    wait_for_completion(cq.get(), "the receive", options.timeout);
    std::printf("received \"%s\"\n", parts[0].data());
  } else {
    const std::array<ibv_sge, 3> pieces{piece(mr.get(), parts[0].data(), 5),
                                        piece(mr.get(), parts[1].data(), 3),
                                        piece(mr.get(), parts[2].data(), 7)};
    // TODO: there is only one receive for all of this.
    for (ibv_sge one : pieces) {
      post_send(
          qp.get(),
          {.sg_list = &one, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
      wait_for_completion(cq.get(), "the SEND", options.timeout);
    }
    std::printf("sent\n");
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, one_message);
}

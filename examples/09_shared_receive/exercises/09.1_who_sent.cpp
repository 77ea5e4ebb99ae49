// SPDX-License-Identifier: MIT
// Exercise 09.1 (★): who sent how many?
// Wanted:   four queue pairs, each connected to itself, send one, two, three and four messages. All
//           of them arrive in one shared receive queue. The program prints how many each of them
//           has sent.
// Hints: ./lab hint 09.1
// Check: ./lab check 09.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

void who_sent(int argc, char **argv) {
  CommandLine line{"Counts the messages of four queue pairs."};
  DeviceOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq sent = create_cq(port.context.get(), 16);
  const unique_cq received = create_cq(port.context.get(), 16);
  ibv_srq_init_attr attr{.attr = {.max_wr = 16, .max_sge = 1}};
  const unique_srq srq(check_ptr(ibv_create_srq(pd.get(), &attr), "ibv_create_srq"));
  for (uint64_t i = 0; i < 16; ++i)
    post_srq_recv(srq.get(), {.wr_id = i}); // the messages have no data

  std::array<unique_qp, 4> qps;
  for (unique_qp &qp : qps) {
    qp = create_rc_qp(pd.get(), sent.get(), received.get(), srq.get(), {.max_send_wr = 4});
    connect_to_itself(qp.get(), port);
  }
  for (size_t i = 0; i < 10; ++i) { // the sender is 0, 1, 2, 3, 1, 2, 3, 2, 3, 3
    const size_t sender = i < 4 ? i : i < 7 ? i - 3 : i < 9 ? i - 5 : 3;
    post_send(qps[sender].get(), {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    wait_for_completion(sent.get(), "the message", std::chrono::seconds(5));
  }
  std::array<int, 4> counts{};
  for (int i = 0; i < 10; ++i) {
    const ibv_wc wc = wait_for_completion(received.get(), "a receive", std::chrono::seconds(5));
    ++counts[wc.wr_id % 4]; // TODO: this is who would have sent it if they had taken turns
  }
  for (size_t i = 0; i < qps.size(); ++i)
    std::printf("queue pair %zu has sent %d\n", i, counts[i]);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, who_sent);
}

// SPDX-License-Identifier: MIT
// Exercise 03.2 (★): eight messages, one completion.
// Wanted:   the client SENDs eight messages and polls a single completion, the last one's; the
//           server says which numbers came, from their immediate data.
// Hints: ./lab hint 03.2
// Check: ./lab check 03.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr uint32_t messages = 8;

void last_of_eight(int argc, char **argv) {
  CommandLine line{"Sends eight messages."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq cq = create_cq(port.context.get(), messages);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(), {.max_send_wr = messages, .max_recv_wr = messages});
  to_init(qp.get(), port);
  if (options.is_server())
    for (uint32_t i = 0; i < messages; ++i)
      post_recv(qp.get(), {});
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);

  if (options.is_server()) {
    for (uint32_t i = 0; i < messages; ++i) {
      const ibv_wc done = wait_for_completion(cq.get(), "a receive", options.timeout);
      std::printf("message %u\n", ntohl(done.imm_data));
    }
  } else {
    for (uint32_t i = 1; i <= messages; ++i)
      // TODO: which of them has to complete, and what does the server need?
      post_send(qp.get(), {.wr_id = i, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    const ibv_wc done = wait_for_completion(cq.get(), "the last SEND", options.timeout);
    std::printf("request %lu is done, and so are those before it\n",
                static_cast<unsigned long>(done.wr_id));
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, last_of_eight);
}

// SPDX-License-Identifier: MIT
// Exercise 11.2 (★★): get everything back.
// Wanted:   before the client destroys its queue pair, each of its seven posted requests has come
//           back: four receives that nobody sends to, and three SENDs that the server has no
//           receives for. The client may then free what belongs to them.
// Hints: ./lab hint 11.2
// Check: ./lab check 11.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr int receives = 4, sends = 3;

// Returns how many requests have come back.
int get_back(ibv_qp *qp, ibv_cq *cq, std::chrono::seconds timeout) {
  // TODO: none have.
  static_cast<void>(qp), static_cast<void>(cq), static_cast<void>(timeout);
  return 0;
}

void all_back(int argc, char **argv) {
  CommandLine line{"Gets its requests back."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq cq = create_cq(port.context.get(), receives + sends);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(), {.max_send_wr = sends, .max_recv_wr = receives});
  to_init(qp.get(), port);
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);
  if (options.is_server()) {
    exchange.receive_done();
  } else {
    for (int i = 0; i < receives; ++i)
      post_recv(qp.get(), {});
    for (int i = 0; i < sends; ++i)
      post_send(qp.get(), {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    const int back = get_back(qp.get(), cq.get(), options.timeout);
    std::printf("%d of %d requests have come back\n", back, receives + sends);
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, all_back);
}

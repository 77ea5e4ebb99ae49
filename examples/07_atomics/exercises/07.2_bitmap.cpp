// SPDX-License-Identifier: MIT
// Exercise 07.2 (★★★): sixty-four places, one bit for each.
// Wanted:   claim() takes the first place that is free, and returns its number; no two clients
//           would ever get the same. give_back() makes it free again, without trying twice.
// Hints: ./lab hint 07.2
// Check: ./lab check 07.2

#include "words.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <bit>
#include <cinttypes>
#include <cstdio>

using namespace rdmacommon;

namespace {

int claim(Remote &remote) {
  // TODO: everybody gets place 0.
  remote.fetch_add(0, 1);
  return 0;
}

void give_back(Remote &remote, int place) {
  // TODO: nothing becomes free.
  static_cast<void>(remote), static_cast<void>(place);
}

void run(int argc, char **argv) {
  CommandLine line{"Claims places, and gives one back."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  uint64_t word = 0; // the server's: one bit for each place; the client's: what an atomic returns
  const unique_pd pd = alloc_pd(port.context.get());
  const unsigned remote_access = options.is_server() ? IBV_ACCESS_REMOTE_ATOMIC : 0;
  const unique_mr mr = reg_mr(pd.get(), &word, sizeof word, IBV_ACCESS_LOCAL_WRITE | remote_access);
  const unique_cq cq = create_cq(port.context.get(), 1);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_send_sge = 1});
  to_init(qp.get(), port, remote_access);
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));
  if (options.is_server()) {
    exchange.receive_done();
    std::printf("places taken: %" PRIx64 "\n", word);
  } else {
    Remote remote(qp.get(), cq.get(), mr.get(), word, theirs, options.timeout);
    for (int i = 0; i < 6; ++i)
      std::printf("claimed %d\n", claim(remote));
    give_back(remote, 2);
    give_back(remote, 4);
    std::printf("gave back 2 and 4\n");
    for (int i = 0; i < 3; ++i)
      std::printf("claimed %d\n", claim(remote));
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

// SPDX-License-Identifier: MIT
// Exercise 07.1 (★★): an atomic maximum, made of compare-and-swap.
// Wanted:   the word ends up as the largest of the numbers, whatever their order, and would do so
//           with many clients at once. maximum() first guesses that there is 0, and returns how
//           many compare-and-swaps it took.
// Hints: ./lab hint 07.1
// Check: ./lab check 07.1

#include "words.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <cinttypes>
#include <cstdio>

using namespace rdmacommon;

namespace {

int maximum(Remote &remote, uint64_t number) {
  // TODO: the first number wins, and none after it.
  remote.compare_swap(0, 0, number);
  return 1;
}

void run(int argc, char **argv) {
  CommandLine line{"Keeps the largest number."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  uint64_t word = 0; // the server's: the largest so far; the client's: what an atomic returns
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
    std::printf("the largest is %" PRIu64 "\n", word);
  } else {
    Remote remote(qp.get(), cq.get(), mr.get(), word, theirs, options.timeout);
    for (const uint64_t number : {3, 9, 4, 12, 7})
      std::printf("%" PRIu64 ": tried %d times\n", number, maximum(remote, number));
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

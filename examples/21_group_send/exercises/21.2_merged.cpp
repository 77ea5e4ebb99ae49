// SPDX-License-Identifier: MIT
// Exercise 21.2 (★): give back several runs as one.
// Wanted:   the server gives all slots back with four messages in place of eight. The client does
//           not notice: a credit is a run of slots, and need not be one of the client's own runs.
// Hints: ./lab hint 21.2
// Check: ./lab check 21.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <array>
#include <cstdio>
#include <vector>

using namespace rdmacommon;

namespace {

constexpr uint32_t slots = 1024;
constexpr std::array<Run, 8> sent{
    {{700, 100}, {800, 100}, {900, 50}, {950, 50}, {1000, 24}, {0, 60}, {60, 1}, {64, 6}}};

std::vector<Run> give_back(const std::vector<Run> &done) {
  // TODO: each goes back by itself.
  return done;
}

void server(SendQueue &queue, RunReceiver &receives, ibv_cq *cq, std::chrono::seconds timeout) {
  std::vector<Run> done;
  while (done.size() < sent.size())
    done.push_back(receives.received(wait_for_completion(cq, "a run", timeout)));
  receives.repost();
  for (const Run run : give_back(done))
    add_run(queue, {}, run, 0);
  queue.post();
}

void client(SendQueue &queue, RunReceiver &receives, ibv_cq *cq, std::chrono::seconds timeout) {
  std::vector<uint32_t> under_way;
  for (const Run run : sent) {
    add_run(queue, {}, run, 0); // the slots are left out here: it is about the runs
    for (uint32_t i = 0; i < run.count; ++i)
      under_way.push_back(run.first + i);
  }
  queue.post();
  size_t back = 0;
  uint32_t credits = 0;
  while (back < under_way.size()) {
    const ibv_wc wc = wait_for_completion(cq, "a credit", timeout);
    if ((wc.opcode & IBV_WC_RECV) == 0) {
      queue.completed(wc);
      continue;
    }
    const Run credit = receives.received(wc);
    for (uint32_t i = 0; i < credit.count; ++i)
      if (back == under_way.size() || under_way[back++] != credit.first + i)
        throw Error("the credit", "it is for slots that are not under way");
    ++credits;
  }
  std::printf("%zu runs of %zu slots, given back by %u messages\n", sent.size(), under_way.size(),
              credits);
}

void merged(int argc, char **argv) {
  CommandLine line{"Sends runs of slots, and gives them back."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq cq = create_cq(port.context.get(), 64);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 16, .max_recv_wr = 16});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
  RunReceiver receives(qp.get(), 16, slots);
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);
  SendQueue queue(qp.get(), 16);
  if (options.is_server())
    server(queue, receives, cq.get(), options.timeout);
  else
    client(queue, receives, cq.get(), options.timeout);
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, merged);
}

// SPDX-License-Identifier: MIT
// Exercise 28.1 (★★): what a message costs, in numbers that any device has.
// Wanted:   the same 1000 messages, with at most 40 calls of ibv_post_send() and at most 20
//           completions.
// Hints: ./lab hint 28.1
// Check: ./lab check 28.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/work_queues.hpp>

#include <array>
#include <cinttypes>
#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr uint32_t messages = 1000, depth = 100;

uint64_t take_completions(SendQueue &queue, ibv_cq *cq) {
  std::array<ibv_wc, 16> done;
  const size_t count = poll_batch(cq, done);
  for (size_t i = 0; i < count; ++i)
    queue.completed(done.at(i));
  return count;
}

// Sends them all, and comes back when the last one is done. @return completions
uint64_t send_all(SendQueue &queue, ibv_cq *cq, ibv_send_wr request) {
  uint64_t completions = 0;
  // TODO: a post and a completion for each.
  request.send_flags = IBV_SEND_SIGNALED;
  for (uint32_t i = 0; i < messages; ++i) {
    while (queue.room() == 0)
      completions += take_completions(queue, cq);
    queue.add(request);
    queue.post();
  }
  while (queue.done() < queue.added())
    completions += take_completions(queue, cq);
  return completions;
}

void counts(int argc, char **argv) {
  CommandLine line{"Sends a thousand messages."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  std::array<char, 64> memory{};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &memory, sizeof memory, access);
  const unique_cq cq = create_cq(port.context.get(), depth);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(),
                   {.max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));
  if (options.is_server()) {
    exchange.receive_done(options.wait);
  } else {
    ibv_sge one = piece(mr.get(), memory.data(), memory.size());
    SendQueue queue(qp.get(), depth);
    const uint64_t completions =
        send_all(queue, cq.get(),
                 {.sg_list = &one,
                  .num_sge = 1,
                  .opcode = IBV_WR_RDMA_WRITE,
                  .wr = {.rdma = {.remote_addr = theirs.address, .rkey = theirs.rkey}}});
    std::printf("%" PRIu64 " messages are done\n", queue.done());
    std::printf("a post for 25 of them or more: %s\n",
                queue.posts() <= messages / 25 ? "yes" : "no");
    std::printf("a completion for 50 or more: %s\n", completions <= messages / 50 ? "yes" : "no");
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, counts);
}

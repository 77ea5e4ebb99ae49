// SPDX-License-Identifier: MIT
// Exercise 21.1 (★): sixteen messages, one request.
// Wanted:   the same sixteen messages arrive in the same slots, and the server's receive queue is
//           used once.
// Hints: ./lab hint 21.1
// Check: ./lab check 21.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <array>
#include <cstdio>
#include <cstring>

using namespace rdmacommon;

namespace {

constexpr uint32_t slot_size = 64, slots = 64, first = 20, messages = 16;
using Slots = std::array<std::array<char, slot_size>, slots>;

void client(SendQueue &queue, const SlotMirror &mirror, Slots &ours) {
  for (uint32_t i = 0; i < messages; ++i) {
    const SlotHeader header = to_wire({.length = 1, .kind = 1, .flags = 0, .id = i});
    std::memcpy(ours[first + i].data(), &header, sizeof header);
    ours[first + i][sizeof header] = static_cast<char>('a' + i);
  }
  // TODO: a request for each.
  for (uint32_t i = 0; i < messages; ++i)
    add_run(queue, mirror, {.first = first + i, .count = 1}, sizeof(SlotHeader) + 1);
  queue.post();
}

void server(RunReceiver &receives, ibv_cq *cq, const Slots &slots_here,
            std::chrono::seconds timeout) {
  std::string text;
  uint32_t runs = 0;
  for (; text.size() < messages; ++runs) {
    const Run run = receives.received(wait_for_completion(cq, "a run", timeout));
    for (uint32_t slot = run.first; slot < run.first + run.count; ++slot) {
      SlotHeader header;
      std::memcpy(&header, slots_here[slot].data(), sizeof header);
      if (from_wire(header) != SlotHeader{.length = 1, .kind = 1, .flags = 0, .id = text.size()})
        throw Error("a message", "it is not the next one");
      text += slots_here[slot][sizeof header];
    }
  }
  std::printf("\"%s\": %zu messages in %u request%s\n", text.c_str(), text.size(), runs,
              runs == 1 ? "" : "s");
}

void one_request(int argc, char **argv) {
  CommandLine line{"Sends sixteen messages."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  Slots memory{};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &memory, sizeof memory, access);
  const unique_cq cq = create_cq(port.context.get(), 64);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
  RunReceiver receives(qp.get(), 32, slots);
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));
  SendQueue queue(qp.get(), 32);
  if (options.is_server())
    server(receives, cq.get(), memory, options.timeout);
  else
    client(queue, {mr.get(), slot_size, theirs.address, theirs.rkey, 0}, memory);
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, one_request);
}

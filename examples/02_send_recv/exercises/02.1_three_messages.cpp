// SPDX-License-Identifier: MIT
// Exercise 02.1 (★★): three messages instead of one.
// Wanted:   the client SENDs "one", "two" and "three"; the server prints them in this order.
// Hints: ./lab hint 02.1
// Check: ./lab check 02.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr int messages = 3;
constexpr size_t size = 16;
using Slots = std::array<std::array<char, size>, messages>;

ibv_sge slot(Slots &slots, int number, ibv_mr *mr) {
  return {.addr = reinterpret_cast<uintptr_t>(slots[static_cast<size_t>(number)].data()),
          .length = size,
          .lkey = mr->lkey};
}

// Polls until one request has completed, and returns its wr_id.
uint64_t wait_for_one(ibv_cq *cq, const char *what, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  ibv_wc completion{};
  while (check_count(ibv_poll_cq(cq, 1, &completion), "ibv_poll_cq") == 0)
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(what, "no completion in time");
  check_wc(completion, what);
  return completion.wr_id;
}

void three_messages(int argc, char **argv) {
  CommandLine line{"Sends three messages."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  Slots slots{{{"one"}, {"two"}, {"three"}}};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &slots, sizeof slots, access);
  const unique_cq cq = create_cq(port.context.get(), messages);
  // TODO: is there room for three?
  const ibv_qp_cap room{.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), room);
  to_init(qp.get(), port);

  if (options.is_server()) {
    slots = {};
    // TODO: one receive is not enough.
    ibv_sge sge = slot(slots, 0, mr.get());
    ibv_recv_wr request{.wr_id = 0, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr *refused = nullptr;
    check_rc(ibv_post_recv(qp.get(), &request, &refused), "ibv_post_recv");
  }

  const Endpoint self = endpoint_of(qp.get(), port, random_psn());
  Exchange exchange(options);
  if (!options.is_server())
    exchange.send(self);
  const Endpoint peer = exchange.receive();
  to_rtr(qp.get(), port, peer);
  to_rts(qp.get(), self.psn);
  if (options.is_server()) {
    exchange.send(self);
    exchange.receive_done();
    for (int i = 0; i < messages; ++i) {
      const uint64_t number = wait_for_one(cq.get(), "a receive", options.timeout);
      std::printf("received %s\n", slots[number].data());
    }
  } else {
    exchange.send_done();
    for (int i = 0; i < messages; ++i) {
      ibv_sge what = slot(slots, i, mr.get());
      ibv_send_wr request{.wr_id = static_cast<uint64_t>(i),
                          .sg_list = &what,
                          .num_sge = 1,
                          .opcode = IBV_WR_SEND,
                          .send_flags = IBV_SEND_SIGNALED};
      ibv_send_wr *refused = nullptr;
      check_rc(ibv_post_send(qp.get(), &request, &refused), "ibv_post_send");
      wait_for_one(cq.get(), "a SEND", options.timeout);
      std::printf("sent %s\n", slots[static_cast<size_t>(i)].data());
    }
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, three_messages);
}

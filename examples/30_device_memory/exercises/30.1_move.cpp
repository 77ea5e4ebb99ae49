// SPDX-License-Identifier: MIT
// Exercise 30.1 (★): the NIC moves a text from one place on its chip to another, and no byte of it
//           passes through the host's memory.
// Wanted:   at offset 4096: "a text on the chip".
// Hints: ./lab hint 30.1
// Check: ./lab check 30.1

#include "on_chip.hpp"

#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <chrono>
#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr size_t text_length = 20, from = 64, to = 4096;

void move_on_chip(ibv_qp *qp, const OnChip &chip) {
  // TODO: one work request.
  (void)qp;
  (void)chip;
}

void exercise(int argc, char **argv) {
  CommandLine line{"The NIC moves a text on its chip."};
  DeviceOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  OnChip chip(port, pd.get(), 8192, false);
  const unique_cq cq = create_cq(port.context.get(), 1);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_send_sge = 1});
  connect_to_itself(qp.get(), port, IBV_ACCESS_REMOTE_WRITE); // exercise 02.2

  char text[text_length] = "a text on the chip";
  chip.copy_in(from, text, sizeof text);
  move_on_chip(qp.get(), chip);
  ibv_wc done{};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (done.opcode != IBV_WC_RDMA_WRITE && std::chrono::steady_clock::now() < deadline)
    if (check_count(ibv_poll_cq(cq.get(), 1, &done), "ibv_poll_cq") == 1)
      check_wc(done, "the WRITE");
  chip.copy_out(text, to, sizeof text);
  std::printf("at offset %zu: \"%.*s\"\n", to, int{text_length}, text);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, exercise);
}

// SPDX-License-Identifier: MIT
// Exercise 08.2 (★): where is the message?
// Wanted:   the server prints the message, its length without the header, and nothing else.
// Hints: ./lab hint 08.2
// Check: ./lab check 08.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/ud_queue_pair.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>

using namespace rdmacommon;

namespace {

constexpr uint32_t qkey = 0x0802;

void send(ibv_qp *qp, ibv_cq *cq, ibv_ah *ah, uint32_t qpn, ibv_sge what) {
  post_send(qp, {.sg_list = &what,
                 .num_sge = 1,
                 .opcode = IBV_WR_SEND,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr = {.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = qkey}}});
  wait_for_completion(cq, "the SEND", std::chrono::seconds(5));
}

void forty_bytes(int argc, char **argv) {
  CommandLine line{"Sends one datagram."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  std::array<char, 256> incoming{}, outgoing{};
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_mr in =
      reg_mr(pd.get(), incoming.data(), incoming.size(), int{IBV_ACCESS_LOCAL_WRITE});
  const unique_mr out = reg_mr(pd.get(), outgoing.data(), outgoing.size(), 0);
  const unique_cq cq = create_cq(port.context.get(), 2);
  const unique_qp qp =
      create_ud_qp(pd.get(), cq.get(), cq.get(),
                   {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1});
  ud_to_rts(qp.get(), port, qkey);
  ibv_sge sge = piece(in.get(), incoming.data(), incoming.size());
  post_recv(qp.get(), {.sg_list = &sge, .num_sge = 1});
  Exchange exchange(options);

  if (options.is_server()) {
    exchange.send(endpoint_of(qp.get(), port, 0));
    const ibv_wc wc = wait_for_completion(cq.get(), "the receive", options.timeout);
    // TODO: the message does not begin here, nor is it that long.
    const std::string_view message(incoming.data(), wc.byte_len);
    for (const char byte : message)
      std::putchar(byte >= ' ' ? byte : '?');
    std::printf(": %zu bytes\n", message.size());
  } else {
    const Endpoint server = exchange.receive();
    const unique_ah ah = create_ah(pd.get(), port, server);
    const std::string_view text = "a short message";
    text.copy(outgoing.data(), outgoing.size());
    send(qp.get(), cq.get(), ah.get(), server.qpn, piece(out.get(), outgoing.data(), text.size()));
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, forty_bytes);
}

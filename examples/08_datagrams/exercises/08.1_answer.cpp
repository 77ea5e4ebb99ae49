// SPDX-License-Identifier: MIT
// Exercise 08.1 (★★): answer one that you know nothing of.
// Wanted:   the client gets its own message back.
// Hints: ./lab hint 08.1
// Check: ./lab check 08.1

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
#include <cstring>
#include <string_view>

using namespace rdmacommon;

namespace {

constexpr uint32_t qkey = 0x0801;

void send(ibv_qp *qp, ibv_cq *cq, ibv_ah *ah, uint32_t qpn, ibv_sge what) {
  post_send(qp, {.sg_list = &what,
                 .num_sge = 1,
                 .opcode = IBV_WR_SEND,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr = {.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = qkey}}});
  wait_for_completion(cq, "the SEND", std::chrono::seconds(5));
}

void answer(int argc, char **argv) {
  CommandLine line{"Sends a datagram back to where it came from."};
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
    const size_t length = wc.byte_len - grh_size;
    std::memcpy(outgoing.data(), incoming.data() + grh_size, length);
    // TODO: send the `length` bytes at `outgoing` to where they came from.
    std::printf("a datagram of %zu bytes came\n", length);
  } else {
    const Endpoint server = exchange.receive();
    const unique_ah ah = create_ah(pd.get(), port, server);
    const std::string_view text = "is anybody there?";
    text.copy(outgoing.data(), outgoing.size());
    send(qp.get(), cq.get(), ah.get(), server.qpn, piece(out.get(), outgoing.data(), text.size()));
    const ibv_wc wc = wait_for_completion(cq.get(), "the answer", options.timeout);
    std::printf("answer: %.*s\n", static_cast<int>(wc.byte_len - grh_size),
                incoming.data() + grh_size);
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, answer);
}

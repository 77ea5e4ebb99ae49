// SPDX-License-Identifier: MIT
// Exercise 14.2 (★★): answer a datagram that was sent to a group.
// Wanted:   the client gets an answer from the member.
// Hints: ./lab hint 14.2
// Check: ./lab check 14.2

#include "group.hpp"
#include "group_message.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
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

constexpr uint32_t qkey = 0x1402;

void send(ibv_qp *qp, ibv_cq *cq, ibv_ah *ah, uint32_t qpn, ibv_sge what) {
  post_send(qp, {.sg_list = &what,
                 .num_sge = 1,
                 .opcode = IBV_WR_SEND,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr = {.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = qkey}}});
  wait_for_completion(cq, "the SEND", std::chrono::seconds(5));
}

// @return the handle of the port that has sent the datagram at `incoming`
unique_ah way_back(ibv_pd *pd, const Port &port, ibv_wc completion, const char *incoming) {
  // TODO: this looks for a GID of ours in the header, and finds the group there.
  ibv_grh header;
  std::memcpy(&header, incoming, sizeof header);
  return unique_ah(check_ptr(ibv_create_ah_from_wc(pd, &completion, &header, port.number),
                             "ibv_create_ah_from_wc"));
}

void answer_group(int argc, char **argv) {
  CommandLine line{"Answers a datagram that was sent to a group."};
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
  const ibv_gid group = group_gid(8);
  const std::string_view text = options.is_server() ? "a member" : "who is there?";
  text.copy(outgoing.data(), outgoing.size());
  const ibv_sge what = piece(out.get(), outgoing.data(), text.size());

  if (options.is_server()) {
    QpMembership attached(qp.get());
    HostMembership host;
    attached.join(group);
    host.join(port.gid.gid, group);
    Exchange exchange(options);
    exchange.send_done();
    const ibv_wc completion = wait_for_completion(cq.get(), "the question", options.timeout);
    const unique_ah back = way_back(pd.get(), port, completion, incoming.data());
    send(qp.get(), cq.get(), back.get(), completion.src_qp, what);
    exchange.finish();
  } else {
    Exchange exchange(options);
    exchange.receive_done();
    const unique_ah ah = create_ah(pd.get(), port, {.gid = group});
    send(qp.get(), cq.get(), ah.get(), group_qpn, what);
    const ibv_wc answer = wait_for_completion(cq.get(), "the answer", options.timeout);
    std::printf("answer: %.*s\n", static_cast<int>(answer.byte_len - grh_size),
                incoming.data() + grh_size);
    exchange.finish();
  }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, answer_group);
}

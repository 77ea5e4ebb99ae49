// SPDX-License-Identifier: MIT
// Exercise 14.1 (★): one queue pair, two groups.
// Wanted:   the server receives the datagram to each group.
// Hints: ./lab hint 14.1
// Check: ./lab check 14.1

#include "group.hpp"
#include "group_message.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/ud_queue_pair.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr uint32_t qkey = 0x1401;
constexpr size_t slot_size = 256, slots = 2;

void two_groups(int argc, char **argv) {
  CommandLine line{"Sends a datagram to each of two groups."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  std::array<char, slots * slot_size> memory{};
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_mr mr = reg_mr(pd.get(), memory.data(), memory.size(), int{IBV_ACCESS_LOCAL_WRITE});
  const unique_cq cq = create_cq(port.context.get(), slots);
  const unique_qp qp =
      create_ud_qp(pd.get(), cq.get(), cq.get(),
                   {.max_send_wr = 1, .max_recv_wr = slots, .max_send_sge = 1, .max_recv_sge = 1});
  ud_to_rts(qp.get(), port, qkey);
  const std::array groups{group_gid(8), group_gid(9)};

  if (options.is_server()) {
    for (size_t slot = 0; slot < slots; ++slot) {
      ibv_sge sge = piece(mr.get(), memory.data() + slot * slot_size, slot_size);
      post_recv(qp.get(), {.wr_id = slot, .sg_list = &sge, .num_sge = 1});
    }
    QpMembership attached(qp.get());
    HostMembership host;
    // TODO: the queue pair and the host are members of the first group only.
    attached.join(groups[0]);
    host.join(port.gid.gid, groups[0]);
    Exchange exchange(options);
    exchange.send_done();
    for (size_t count = 0; count < slots; ++count) {
      const ibv_wc done = wait_for_completion(cq.get(), "a datagram", options.timeout / 2);
      const char *slot = memory.data() + done.wr_id * slot_size;
      std::printf("a datagram to %s\n", to_text(addresses_of(slot).destination).c_str());
    }
    exchange.finish();
  } else {
    Exchange exchange(options);
    exchange.receive_done();
    for (const ibv_gid &group : groups) {
      const unique_ah ah = create_ah(pd.get(), port, {.gid = group});
      ibv_sge what = piece(mr.get(), memory.data(), 5);
      post_send(qp.get(),
                {.sg_list = &what,
                 .num_sge = 1,
                 .opcode = IBV_WR_SEND,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr = {.ud = {.ah = ah.get(), .remote_qpn = group_qpn, .remote_qkey = qkey}}});
      wait_for_completion(cq.get(), "the SEND", options.timeout);
    }
    exchange.finish();
  }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, two_groups);
}

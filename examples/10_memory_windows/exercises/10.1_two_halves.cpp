// SPDX-License-Identifier: MIT
// Exercise 10.1 (★): two windows over one region. The peer may read the first half, and write the
// second half.
// Wanted:   the device refuses two of the four accesses: the WRITE to the first half, and the READ
//           of the second half.
// Hints: ./lab hint 10.1
// Check: ./lab check 10.1

#include "bind_alone.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

std::array<char, 4096> memory{};
constexpr size_t half_size = memory.size() / 2;

// The window for this half: 0 or 1.
ibv_mw_bind_info window_of(ibv_mr *mr, size_t half) {
  // TODO: both windows open everything.
  (void)half;
  return {.mr = mr,
          .addr = reinterpret_cast<uintptr_t>(memory.data()),
          .length = memory.size(),
          .mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
}

void two_halves(int argc, char **argv) {
  CommandLine line{"Two windows over one region."};
  DeviceOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  require_windows(port.context.get());
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_mr mr =
      reg_mr(pd.get(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  for (const size_t half : {0UL, 1UL})
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE}) {
      // Its own peer, and a new one for each access, since one that is refused breaks it.
      const Loopback to(port, pd.get(), IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
      const unique_mw mw(check_ptr(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2), "ibv_alloc_mw"));
      const uint32_t rkey = ibv_inc_rkey(mw->rkey);
      post_send(
          to.qp.get(),
          {.opcode = IBV_WR_BIND_MW,
           .send_flags = IBV_SEND_SIGNALED,
           .bind_mw = {.mw = mw.get(), .rkey = rkey, .bind_info = window_of(mr.get(), half)}});
      check_wc(to.next("the bind"), "the bind");
      ibv_sge here = piece(mr.get(), memory.data(), 64);
      const auto there = reinterpret_cast<uintptr_t>(memory.data() + half * half_size);
      post_send(to.qp.get(), {.sg_list = &here,
                              .num_sge = 1,
                              .opcode = opcode,
                              .send_flags = IBV_SEND_SIGNALED,
                              .wr = {.rdma = {.remote_addr = there, .rkey = rkey}}});
      const ibv_wc done = to.next("the access");
      std::printf("half %zu, %-5s: %s\n", half, opcode == IBV_WR_RDMA_READ ? "READ" : "WRITE",
                  done.status == IBV_WC_SUCCESS ? "works" : "refused");
    }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, two_halves);
}

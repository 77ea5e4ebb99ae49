// SPDX-License-Identifier: MIT
// Exercise 10.2 (★★): one window for four requests, one after the other, each with a key of its
// own.
// Wanted:   four requests that work, and a fifth, by the key of the first, that is refused.
// Hints: ./lab hint 10.2
// Check: ./lab check 10.2

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

void again(int argc, char **argv) {
  CommandLine line{"One window, bound anew for each request."};
  DeviceOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  require_windows(port.context.get());
  static std::array<char, 4096> memory{};
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_mr mr =
      reg_mr(pd.get(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  const Loopback to(port, pd.get(), IBV_ACCESS_REMOTE_READ); // its own peer
  const unique_mw mw(check_ptr(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2), "ibv_alloc_mw"));
  const auto there = reinterpret_cast<uintptr_t>(memory.data());
  ibv_sge here = piece(mr.get(), memory.data() + 2048, 64);
  const auto read = [&](uint32_t rkey) {
    post_send(to.qp.get(), {.sg_list = &here,
                            .num_sge = 1,
                            .opcode = IBV_WR_RDMA_READ,
                            .send_flags = IBV_SEND_SIGNALED,
                            .wr = {.rdma = {.remote_addr = there, .rkey = rkey}}});
    return to.next("the READ").status == IBV_WC_SUCCESS ? "works" : "is refused";
  };

  std::array<uint32_t, 4> keys{};
  for (uint32_t &key : keys) {
    // TODO: only the first of these binds works. What is to follow it, and what behind the READ?
    key = ibv_inc_rkey(mw->rkey);
    post_send(to.qp.get(), {.opcode = IBV_WR_BIND_MW,
                            .send_flags = IBV_SEND_SIGNALED,
                            .bind_mw = {.mw = mw.get(),
                                        .rkey = key,
                                        .bind_info = {.mr = mr.get(),
                                                      .addr = there,
                                                      .length = 64,
                                                      .mw_access_flags = IBV_ACCESS_REMOTE_READ}}});
    check_wc(to.next("the bind"), "the bind");
    std::printf("READ by key %td %s\n", &key - keys.data() + 1, read(key));
  }
  std::printf("READ by key 1 %s\n", read(keys[0]));
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, again);
}

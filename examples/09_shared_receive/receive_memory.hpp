// SPDX-License-Identifier: MIT
// Measures the memory that receives for many queue pairs take: with a receive queue for each, and
// with one for all.
#pragma once

#include "pool.hpp"

#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

// Memory of this process that the kernel has pinned, so that devices can use it, in KiB.
inline size_t pinned_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (size_t kib = 0; word == "VmPin:" && status >> kib)
      return kib;
  throw rdmacommon::Error("/proc/self/status", "it has no VmPin");
}

// Makes `qps` queue pairs with `receives` posted in all, to one queue or to each its own, and
// prints what it took.
inline void measure(const rdmacommon::Port &port, ibv_pd *pd, uint32_t qps, uint32_t receives,
                    bool shared) {
  using namespace rdmacommon;
  const size_t before = pinned_kib();
  const size_t page = 4096, bytes = (receives * sizeof(Message) + page - 1) / page * page;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(page, bytes),
                                                           &std::free);
  const int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd, memory.get(), bytes, access);
  const unique_cq cq = create_cq(pd->context, static_cast<int>(receives));
  const unique_srq srq = shared ? create_srq(pd, receives) : nullptr;
  std::vector<unique_qp> all;
  while (all.size() < qps) {
    const ibv_qp_cap cap{.max_recv_wr = shared ? 0 : receives / qps, .max_recv_sge = 1};
    all.push_back(create_rc_qp(pd, cq.get(), cq.get(), srq.get(), cap));
    to_init(all.back().get(), port); // in RESET it takes no receives
  }
  for (uint32_t i = 0; i < receives; ++i) {
    ibv_sge sge = piece(mr.get(), static_cast<Message *>(memory.get()) + i, sizeof(Message));
    if (shared)
      post_srq_recv(srq.get(), {.sg_list = &sge, .num_sge = 1});
    else
      post_recv(all[i % qps].get(), {.sg_list = &sge, .num_sge = 1});
  }
  std::printf("%-25s %8u receives, %5zu KiB registered, %5zu KiB pinned\n",
              shared ? "one for all queue pairs:" : "a queue for each:", receives,
              mr->length / 1024, pinned_kib() - before);
}

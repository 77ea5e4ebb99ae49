// What one side of the connections has done, counted where it is done. One thread writes, any may read.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <bit>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

namespace shared_client {

class Counter {
public:
  void operator+=(uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  operator uint64_t() const { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<uint64_t> value_{0};
};

struct Stats {
  Counter messages;             // requests that were sent, or answered
  Counter groups;               // runs that they went in
  Counter posts;                // calls of ibv_post_send and ibv_post_recv
  Counter completions;          // polled
  Counter wakes;                // callers, or threads of the pool, that slept
  Counter rnr;                  // completions that say "receiver not ready"; must be none
  Counter sleeps;               // of the thread that has the connections
  Counter other_calls;          // its other system calls: arming, events, doorbells
  std::array<Counter, 9> sizes; // groups of 1, 2, 3-4, 5-8, ..., 129-255 messages

  void count_group(uint32_t count) {
    groups += 1;
    messages += count;
    sizes.at(std::bit_width(count - 1)) += 1;
  }

  void count(const ibv_wc &wc) {
    completions += 1;
    rnr += wc.status == IBV_WC_RNR_RETRY_EXC_ERR;
  }

  void print(const char *whose) const {
    const double each = messages > 0 ? static_cast<double>(messages) : 1;
    std::printf("%s: %" PRIu64 " messages in %" PRIu64 " groups:", whose, uint64_t{messages},
                uint64_t{groups});
    for (uint32_t i = 0; i < sizes.size(); ++i)
      if (sizes.at(i) > 0)
        std::printf(" %" PRIu64 " of up to %u,", uint64_t{sizes.at(i)}, i == 8 ? 255 : 1U << i);
    std::printf(" RNR: %" PRIu64 "\n", uint64_t{rnr});
    // On SoftRoCE ibv_post_send is a system call; ibv_post_recv is none, but is counted here. A NIC takes both from user space.
    std::printf("%s: each message: %.3f posts, %.3f completions, %.3f wakes, %.3f sleeps, %.3f "
                "system calls\n",
                whose, posts / each, completions / each, wakes / each, sleeps / each,
                (posts + wakes + sleeps + other_calls) / each);
  }
};

} // namespace shared_client

// SPDX-License-Identifier: MIT
// The counters of the connections of one loop. The thread that has the loop writes; any thread may
// read.
#pragma once

#include "rdmashared/basics.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rdmashared {

class Counter {
public:
  void operator+=(uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  operator uint64_t() const { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<uint64_t> value_{0};
};

// Each is what Counts says of it.
struct Stats {
  Counter messages, groups, posts, completions, wakes, rnr, sleeps, other_calls;
  std::array<Counter, 9> sizes;

  void count_group(uint32_t count) {
    groups += 1;
    messages += count;
    sizes.at(std::bit_width(std::min(count, 255U) - 1)) += 1;
  }

  void count(const ibv_wc &wc) {
    completions += 1;
    rnr += wc.status == IBV_WC_RNR_RETRY_EXC_ERR;
  }

  Counts now() const {
    Counts all{.messages = messages,
               .groups = groups,
               .posts = posts,
               .completions = completions,
               .wakes = wakes,
               .rnr = rnr,
               .sleeps = sleeps,
               .other_calls = other_calls};
    std::ranges::copy(sizes, all.sizes.begin());
    return all;
  }
};

inline void add(Counts &all, const Counts &more) {
  for (uint64_t Counts::*each :
       {&Counts::messages, &Counts::groups, &Counts::posts, &Counts::completions, &Counts::wakes,
        &Counts::rnr, &Counts::sleeps, &Counts::other_calls})
    all.*each += more.*each;
  for (size_t i = 0; i < all.sizes.size(); ++i)
    all.sizes.at(i) += more.sizes.at(i);
}

} // namespace rdmashared

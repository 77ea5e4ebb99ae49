// SPDX-License-Identifier: MIT
// Lesson 23's callers when there is no room, and when time is up.
#include "loop_back.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

using namespace rdmashared;
using namespace std::chrono_literals;

namespace {

// One caller holds responses that it does not collect. The ring goes round them, and they are still
// right.
TEST(Hoarding, StopsNobody) {
  LoopBack loop;
  Caller hoarder = loop.caller(), other = loop.caller();
  std::vector<Pending> held;
  for (int i = 0; i < 5; ++i) {
    held.push_back(hoarder.request_async(bytes_of(std::to_string(i))));
    other.post({});
  }
  for (const auto &taken : loop.take())
    loop.answer(taken);
  for (int i = 0; i < 200; ++i) {
    Pending mine = other.request_async(bytes_of("mine"));
    for (const auto &taken : loop.take())
      loop.answer(taken);
    EXPECT_EQ(mine.wait(0ms), bytes_of("mine"));
  }
  for (size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(held[i].wait(0ms), bytes_of(std::to_string(i)));
}

TEST(Limits, PassHoweverOneWaits) {
  for (const Waiting how : {Waiting::poll, Waiting::events, Waiting::spin}) {
    LoopBack loop;
    Caller caller = loop.caller(how);
    Pending pending = caller.request_async({});
    for (const auto limit : {1ms, 250ms}) { // less, and more, than between two looks for the sender
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(pending.wait(limit), std::nullopt);
      const auto took = std::chrono::steady_clock::now() - begin;
      EXPECT_GE(took, limit);
      EXPECT_LT(took, limit + 2s);
    }
  }
}

} // namespace

// Lesson 19's callers when there is no room: whose responses are taken out of their slots, and what becomes of the copies.
#include "loop_back.hpp"

#include <gtest/gtest.h>

#include <malloc.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace rdmashared;
using namespace std::chrono_literals;

namespace {

class FullRing : public testing::Test {
protected:
  LoopBack loop;
  Caller caller = loop.caller();

  std::vector<Pending> fill(const std::string &text) {
    std::vector<Pending> all;
    for (uint32_t i = 0; i < loop_back_shape.slots; ++i)
      all.push_back(caller.request_async(bytes_of(text)));
    return all;
  }
  void answer_all() {
    for (const auto &taken : loop.take())
      loop.answer(taken);
  }
};

TEST_F(FullRing, OneCallersResponsesAreNotTakenOutByAnother) {
  Caller other =
      loop.caller(); // with the same worker's number, as two of the sender's process have it
  std::vector<Pending> all = fill("mine");
  const auto taken = loop.take();
  for (const auto &one : taken)
    loop.answer(one);
  EXPECT_THROW(other.request_async({}, {.limit = 20ms}), rdmacommon::Error);
  for (const auto &one : taken)
    EXPECT_TRUE(loop.ring.holds(one.slots.position));
  for (Pending &pending : all)
    EXPECT_EQ(pending.wait(0ms), bytes_of("mine"));
}

TEST_F(FullRing, WhatWasTakenOutGoesWithItsPending) {
  const std::string text(loop_back_shape.slot_size - sizeof(rdmacommon::SlotHeader), 'x');
  size_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i == 100)
      before = mallinfo2().uordblks;
    std::vector<Pending> all = fill(text);
    answer_all();
    caller.post({}); // there is no room, so all of them are taken out
    answer_all();
  }
  EXPECT_LT(mallinfo2().uordblks, before + 100'000);
}

// Not for room, which comes only when it has taken the response out of its slots.
TEST_F(FullRing, WhoWantsRoomSleepsForItsOwnResponse) {
  const std::vector<Pending> all = fill("mine");
  const auto taken = loop.take();
  std::thread more([&] { caller.post({}); });
  const auto end = std::chrono::steady_clock::now() + 4s;
  while (!loop.says_asleep(taken[0]) && std::chrono::steady_clock::now() < end)
    ;
  EXPECT_TRUE(loop.says_asleep(taken[0]));
  for (const auto &one : taken)
    loop.answer(one);
  EXPECT_EQ(loop.answers.wake().calls, 1U);
  more.join();
}

TEST(LargeRing, WhoWaitsForAResponseTakesOutAllThatItHolds) { // not only what is in the way now
  LoopBack loop(1024);
  Caller caller = loop.caller();
  std::vector<Pending> held;
  for (int i = 0; i < 600; ++i)
    held.push_back(caller.request_async(bytes_of(std::to_string(i))));
  const auto taken = loop.take();
  for (const auto &one : taken)
    loop.answer(one);
  Pending slow = caller.request_async({});
  EXPECT_EQ(slow.wait(250ms), std::nullopt);
  for (const auto &one : taken)
    EXPECT_FALSE(loop.ring.holds(one.slots.position));
  for (size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(held[i].wait(0ms), bytes_of(std::to_string(i)));
}

TEST(Limits, PassHoweverOneWaits) {
  for (const Waiting how : {Waiting::poll, Waiting::events, Waiting::spin}) {
    LoopBack loop;
    Caller caller = loop.caller(how);
    Pending pending = caller.request_async({});
    for (const auto limit : {1ms, 250ms}) { // less, and more, than one looks after the others
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(pending.wait(limit), std::nullopt);
      const auto took = std::chrono::steady_clock::now() - begin;
      EXPECT_GE(took, limit);
      EXPECT_LT(took, limit + 2s);
    }
  }
}

} // namespace

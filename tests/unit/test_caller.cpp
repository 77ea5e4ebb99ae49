// SPDX-License-Identifier: MIT
// Lesson 23's callers and answers, with a sender that answers when the test says so.
#include "loop_back.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <deque>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace rdmashared;
using namespace std::chrono_literals;

namespace {

class Callers : public testing::Test {
protected:
  LoopBack loop;
  Caller caller = loop.caller();

  Outcome outcome_of(Pending &pending) {
    try {
      pending.wait(0ms);
    } catch (const RequestFailed &failure) {
      return failure.outcome();
    }
    ADD_FAILURE() << "it has not failed";
    return Outcome::response;
  }
  bool is_held(const LoopBack::Taken &taken) { return loop.ring.holds(taken.slots.position); }
  bool says_asleep(const LoopBack::Taken &taken) { return loop.says_asleep(taken); }
};

TEST_F(Callers, AResponseIsCollectedAndItsSlotsGoBack) {
  Pending pending = caller.request_async(bytes_of("a question"));
  const auto taken = loop.take();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].bytes, bytes_of("a question"));
  EXPECT_FALSE(pending.is_ready());
  EXPECT_EQ(pending.wait(0ms), std::nullopt); // and may be asked again
  EXPECT_TRUE(loop.answer(taken[0]));
  EXPECT_TRUE(pending.is_ready());
  EXPECT_TRUE(is_held(taken[0]));
  EXPECT_EQ(pending.wait(0ms), bytes_of("a question"));
  EXPECT_FALSE(is_held(taken[0]));
  EXPECT_THROW(pending.wait(0ms), rdmacommon::Error); // it has been collected
}

TEST_F(Callers, ErrorsNameTheLineOfTheRequest) {
  const auto names = [](int line, auto fails) {
    try {
      fails();
      ADD_FAILURE() << "it has not failed";
    } catch (const rdmacommon::Error &error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("(test_caller.cpp:" + std::to_string(line) + ")"), text.npos) << text;
    }
  };
  const auto much = bytes_of(std::string(100'000, 'x'));
  names(__LINE__, [&] { caller.request(much); });
  names(__LINE__, [&] { caller.post(bytes_of("x"), {.room = 100'000}); });
  names(__LINE__, [&] { (void)caller.request_async(bytes_of("x"), {.server = 7}); });
  names(__LINE__, [&] { caller.wait_connected(0ms, 7); });
  names(__LINE__, [&] { caller.wait_any({}, 0ms); });
  names(__LINE__, [&] { (void)Caller::join("test_caller, which nobody serves"); });
  const int line = __LINE__ + 1;
  Pending pending = caller.request_async(bytes_of("x"));
  loop.answers.deliver(loop.take()[0].slots.position, Outcome::refused, 0);
  names(line, [&] { pending.wait(0ms); });
}

TEST_F(Callers, InPlaceItIsWhereTheServerHasWrittenIt) {
  Pending pending = caller.request_async(bytes_of("here"));
  const auto taken = loop.take();
  loop.answer(taken[0]);
  EXPECT_TRUE(pending.wait(0ms, [&](std::span<const std::byte> bytes) {
    EXPECT_EQ(bytes.data(), loop.answers.slots().data() + sizeof(rdmacommon::SlotHeader));
    EXPECT_TRUE(is_held(taken[0]));
  }));
  EXPECT_FALSE(is_held(taken[0]));
}

TEST_F(Callers, ACallbackThatThrowsGivesTheSlotsBack) {
  Pending pending = caller.request_async(bytes_of("x"));
  const auto taken = loop.take();
  loop.answer(taken[0]);
  EXPECT_THROW(
      pending.wait(0ms, [](std::span<const std::byte>) { throw std::runtime_error("no"); }),
      std::runtime_error);
  EXPECT_FALSE(is_held(taken[0]));
}

TEST_F(Callers, DroppedBeforeTheAnswerTheSenderGivesTheSlotsBack) {
  std::optional<Pending> pending(caller.request_async(bytes_of("x")));
  const auto taken = loop.take();
  pending.reset();
  EXPECT_TRUE(is_held(taken[0]));
  EXPECT_FALSE(loop.answer(taken[0]));
  EXPECT_FALSE(is_held(taken[0]));
}

TEST_F(Callers, DroppedAfterItTheCallerDoes) {
  std::optional<Pending> pending(caller.request_async(bytes_of("x")));
  const auto taken = loop.take();
  EXPECT_TRUE(loop.answer(taken[0]));
  pending.reset();
  EXPECT_FALSE(is_held(taken[0]));
}

TEST_F(Callers, APostWantsNoAnswer) {
  caller.post(bytes_of("x"));
  EXPECT_FALSE(loop.answer(loop.take().at(0)));
}

TEST_F(Callers, AFailureIsTold) {
  Pending lost = caller.request_async({}), refused = caller.request_async({});
  const auto taken = loop.take();
  ASSERT_EQ(taken.size(), 2U);
  loop.answers.deliver(taken[0].slots.position, Outcome::lost, 0);
  EXPECT_EQ(outcome_of(lost), Outcome::lost);
  std::memcpy(loop.answers.slots().data() + 64 + sizeof(rdmacommon::SlotHeader), "no", 2);
  loop.answers.deliver(taken[1].slots.position, Outcome::refused, 2);
  try {
    refused.wait(0ms);
    ADD_FAILURE();
  } catch (const RequestFailed &failure) {
    EXPECT_NE(std::string(failure.what()).find("the server could not answer it: no"),
              std::string::npos);
  }
}

// A process that has closed its link to the sender: nobody collects its answers, and the slots are
// the sender's.
TEST_F(Callers, WhatTheSenderHasGivenUpIsNotCollected) {
  std::optional<Pending> waits(caller.request_async(bytes_of("x"))),
      dropped(caller.request_async(bytes_of("y")));
  const auto taken = loop.take();
  for (const auto &one : taken)
    loop.answers.abandon(one.slots.position);
  EXPECT_THROW(waits->wait(0ms), rdmacommon::Error);
  dropped.reset();
  for (const auto &one : taken) {
    EXPECT_TRUE(is_held(one));
    EXPECT_FALSE(loop.answer(one));
    EXPECT_FALSE(is_held(one));
  }
}

TEST_F(Callers, ARingFullOfOnesOwnResponsesSaysSo) {
  std::deque<Pending> all;
  for (uint32_t i = 0; i < loop_back_shape.slots; ++i)
    all.push_back(caller.request_async(bytes_of(std::to_string(i))));
  for (const auto &taken : loop.take())
    loop.answer(taken);
  EXPECT_FALSE(caller.try_request_async({}));
  EXPECT_THROW(caller.request_async({}, {.limit = 20ms}), rdmacommon::Error);
  for (uint32_t i = 0; i < 100; ++i) { // collect one, and there is room for one
    EXPECT_EQ(all.front().wait(0ms), bytes_of(std::to_string(i)));
    all.pop_front();
    const std::string text = std::to_string(i + loop_back_shape.slots);
    std::optional<Pending> next = caller.try_request_async(bytes_of(text));
    ASSERT_TRUE(next);
    all.push_back(std::move(*next));
    for (const auto &taken : loop.take())
      loop.answer(taken);
  }
}

TEST_F(Callers, ARingFullOfOthersHasALimit) {
  Caller other = loop.caller();
  std::vector<Pending> all;
  for (uint32_t i = 0; i < loop_back_shape.slots; ++i)
    all.push_back(caller.request_async({}));
  EXPECT_THROW(other.request_async({}, {.limit = 20ms}), rdmacommon::Error);
}

TEST_F(Callers, WhatDoesNotFitIsRefusedAtOnce) {
  const size_t most = loop.ring.longest_message() - sizeof(rdmacommon::SlotHeader);
  EXPECT_THROW(caller.request_async(std::vector<std::byte>(most + 1)), rdmacommon::Error);
  EXPECT_THROW(caller.request_async({}, {.room = most + 1, .limit = 1s}), rdmacommon::Error);
  Pending largest = caller.request_async(std::vector<std::byte>(most));
  loop.answer(loop.take().at(0));
  EXPECT_EQ(largest.wait(0ms)->size(), most);
}

TEST_F(Callers, WithoutAConnectionNothingIsHandedOver) {
  loop.answers.status().is_up = 0;
  EXPECT_THROW(caller.request_async({}), RequestFailed);
  EXPECT_TRUE(loop.take().empty());
}

TEST_F(Callers, SleepsUntilThereIsAConnection) {
  EXPECT_TRUE(caller.wait_connected(0ms));
  std::atomic<uint32_t> &is_up = loop.answers.status().is_up;
  is_up = 0;
  EXPECT_FALSE(caller.wait_connected(0ms));
  std::thread sender([&] {
    while (wake(is_up, every_bit) == 0) // until it sleeps
      std::this_thread::yield();
    is_up = 1;
    wake(is_up, every_bit);
  });
  EXPECT_TRUE(caller.wait_connected(10s));
  sender.join();
  EXPECT_THROW(caller.wait_connected(0ms, 1), rdmacommon::Error); // there is no such server
}

TEST_F(Callers, ADeadSenderMakesNoConnection) { // though its word says that the lane is up
  std::vector<CallerLane> lanes;
  lanes.push_back(
      {.ring = &loop.ring, .answers = AnswerTable(loop.ring), .worker = 1, .is_over = [] {
         return true;
       }});
  Caller alone = CallerLanes::caller(std::move(lanes), Waiting::events);
  EXPECT_THROW(alone.wait_connected(10s), rdmacommon::Error);
  LoopBack other; // of a sender that lives, and has no connection
  other.answers.status().is_up = 0;
  std::vector<CallerLane> two;
  two.push_back({.ring = &loop.ring, .answers = AnswerTable(loop.ring), .worker = 1, .is_over = [] {
                   return true;
                 }});
  two.push_back(
      {.ring = &other.ring, .answers = AnswerTable(other.ring), .worker = 1, .is_over = {}});
  Caller both = CallerLanes::caller(std::move(two), Waiting::events);
  const std::clock_t cpu = std::clock();
  EXPECT_FALSE(both.wait_connected(300ms));
  EXPECT_LT(std::clock() - cpu, CLOCKS_PER_SEC / 10); // it has slept
}

TEST_F(Callers, AServerThatThereIsNotIsAnError) {
  EXPECT_THROW(
      {
        try {
          caller.post({}, {.server = 1});
        } catch (const RequestFailed &) {
          ADD_FAILURE() << "it is not that the connection is down";
        }
      },
      rdmacommon::Error);
  loop.answers.status().is_up = 0;
  EXPECT_THROW(caller.post({}, {.server = 0}), RequestFailed);
}

TEST_F(Callers, OfTwoSendersTheOneThatHasDiedIsLeft) {
  LoopBack other;
  other.answers.status().server = 1;
  std::vector<CallerLane> lanes;
  lanes.push_back(
      {.ring = &loop.ring, .answers = AnswerTable(loop.ring), .worker = 1, .is_over = [] {
         return true;
       }});
  lanes.push_back(
      {.ring = &other.ring, .answers = AnswerTable(other.ring), .worker = 1, .is_over = {}});
  Caller both = CallerLanes::caller(std::move(lanes), Waiting::events);
  Pending first = both.request_async({});
  EXPECT_EQ(loop.take().size(), 1U);
  EXPECT_THROW(first.wait(10s), rdmacommon::Error); // nobody answers
  for (int i = 0; i < 4; ++i)
    both.post({});
  EXPECT_TRUE(loop.take().empty());
  EXPECT_EQ(other.take().size(), 4U);
}

// A thread of this process, of which nothing but its number is known (proc_pid_stat(5)).
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.substr(name_end + 2, 1) == "S";
}

TEST_F(Callers, AllWhoSleepForAnAnswerAreWoken) { // one who wants room sleeps for another's
  uint32_t woken = 0;
  for (int i = 0; i < 20 && woken < 2;
       ++i) { // one may just check whether the sender lives, which it does each 100 ms
    Pending pending = caller.request_async({});
    const auto taken = loop.take();
    std::array<std::atomic<pid_t>, 2> numbers{};
    const auto sleep = [&](std::atomic<pid_t> &number) {
      number = gettid();
      AnswerTable(loop.ring).wait(taken[0].slots.position, 10s, Waiting::events, {});
    };
    std::thread first(sleep, std::ref(numbers[0])), second(sleep, std::ref(numbers[1]));
    while (!says_asleep(taken[0]) || !is_asleep(numbers[0]) || !is_asleep(numbers[1]))
      ;
    loop.answer(taken[0]);
    woken = loop.answers.wake().callers;
    first.join();
    second.join();
  }
  EXPECT_EQ(woken, 2U);
}

TEST_F(Callers, ASleeperIsWokenOnce) {
  std::thread asleep([&] {
    std::vector<Pending> mine;
    for (int i = 0; i < 8; ++i)
      mine.push_back(caller.request_async(bytes_of("x")));
    for (Pending &pending : mine)
      EXPECT_EQ(pending.wait(10s), bytes_of("x"));
  });
  std::vector<LoopBack::Taken> taken;
  while (taken.size() < 8 || !says_asleep(taken[0]))
    for (auto &one : loop.take())
      taken.push_back(std::move(one));
  for (const auto &one : taken)
    loop.answer(one);
  EXPECT_EQ(loop.answers.wake().calls, 1U);
  asleep.join();
}

} // namespace

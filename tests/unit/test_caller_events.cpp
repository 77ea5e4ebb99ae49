// SPDX-License-Identifier: MIT
// Lesson 27's callers that wait for many responses at a time, and in an event loop.
#include "loop_back.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace rdmashared;
using namespace std::chrono_literals;

namespace {

bool is_readable(int fd, std::chrono::milliseconds limit) {
  pollfd what{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&what, 1, static_cast<int>(limit.count())) > 0;
}

class Events : public testing::Test {
protected:
  LoopBack loop;
  Caller caller = loop.caller();

  // The any-bell words and the controls say whether somebody sleeps for this one.
  bool says_asleep_on_any(const LoopBack::Taken &taken) const {
    const auto *controls =
        reinterpret_cast<const AnswerControl *>(loop.ring.appendix().data() + 64);
    return (controls[taken.slots.first].word.load() & sleeps_on_any) != 0;
  }
};

TEST_F(Events, AnyOfSeveralIsTheOneThatHasCome) {
  std::vector<Pending> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(caller.request_async(bytes_of(std::to_string(i))));
  const auto taken = loop.take();
  EXPECT_EQ(caller.wait_any(all, 0ms), std::nullopt);
  loop.answer(taken[2]);
  EXPECT_EQ(caller.wait_any(all, 0ms), 2U);
  EXPECT_EQ(all[2].wait(0ms), bytes_of("2"));
  EXPECT_EQ(caller.wait_any(all, 1ms), std::nullopt); // a collected one does not count
  for (const int i : {0, 1, 3}) {
    loop.answer(taken[static_cast<size_t>(i)]);
    EXPECT_EQ(caller.wait_any(all, 0ms), static_cast<size_t>(i));
    all[static_cast<size_t>(i)].wait(0ms);
  }
  EXPECT_THROW(caller.wait_any(all, 0ms), rdmacommon::Error);
}

TEST_F(Events, ASleeperForAnyIsWoken) {
  std::vector<Pending> all;
  for (int i = 0; i < 3; ++i)
    all.push_back(caller.request_async({}));
  const auto taken = loop.take();
  std::thread asleep([&] { EXPECT_EQ(caller.wait_any(all, 60s), 1U); });
  while (!says_asleep_on_any(taken[1]))
    std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  loop.answer(taken[1]);
  loop.answers.wake();
  asleep.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 50s);
}

TEST_F(Events, ALimitCanBeAsLongAsThereIs) {
  std::vector<Pending> all;
  for (int i = 0; i < 2; ++i)
    all.push_back(caller.request_async({}));
  const auto taken = loop.take();
  std::thread any([&] { EXPECT_EQ(caller.wait_any(all, std::chrono::milliseconds::max()), 0U); });
  while (!says_asleep_on_any(taken[0]))
    std::this_thread::yield();
  loop.answer(taken[0]);
  loop.answers.wake();
  any.join();
  std::thread one([&] { EXPECT_TRUE(all[1].wait(std::chrono::milliseconds::max())); });
  while (!loop.says_asleep(taken[1]))
    std::this_thread::yield();
  loop.answer(taken[1]);
  loop.answers.wake();
  one.join();
}

TEST_F(Events, MoreLanesThanOneSleepIsForAreRefused) {
  std::vector<CallerLane> lanes(max_bells + 1, CallerLane{.ring = &loop.ring,
                                                          .answers = AnswerTable(loop.ring),
                                                          .worker = 1,
                                                          .is_over = {}});
  EXPECT_THROW(CallerLanes::caller(std::move(lanes), Waiting::events), rdmacommon::Error);
}

TEST_F(Events, HowToWaitForAnyIsChosenByTheCall) {
  std::vector<Pending> all;
  all.push_back(caller.request_async({}));
  const auto taken = loop.take();
  EXPECT_EQ(caller.wait_any(all, 20ms, Waiting::poll), std::nullopt);
  EXPECT_FALSE(says_asleep_on_any(taken[0]));
  EXPECT_EQ(caller.wait_any(all, 20ms, Waiting::spin), std::nullopt);
  EXPECT_TRUE(says_asleep_on_any(taken[0]));
}

TEST_F(Events, OfSeveralLanesAnyIsTold) {
  LoopBack other;
  other.answers.status().server = 1;
  std::vector<CallerLane> lanes;
  for (LoopBack *one : {&loop, &other})
    lanes.push_back(
        {.ring = &one->ring, .answers = AnswerTable(one->ring), .worker = 1, .is_over = {}});
  Caller both = CallerLanes::caller(std::move(lanes), Waiting::events);
  std::vector<Pending> all;
  all.push_back(both.request_async({})); // one server after the other
  all.push_back(both.request_async({}));
  const auto taken = other.take();
  ASSERT_EQ(taken.size(), 1U);
  ASSERT_EQ(loop.take().size(), 1U);
  std::thread asleep([&] { EXPECT_EQ(both.wait_any(all, 60s), 1U); });
  const auto *controls = reinterpret_cast<const AnswerControl *>(other.ring.appendix().data() + 64);
  while ((controls[taken[0].slots.first].word.load() & sleeps_on_any) == 0)
    std::this_thread::yield();
  other.answer(taken[0]);
  other.answers.wake();
  asleep.join();
}

TEST_F(Events, TheDescriptorIsReadableWhenACallbackIsDue) {
  std::string heard;
  const int fd = caller.fd();
  caller.run_ready(); // takes back what the first call of fd() has left
  caller.request_then(bytes_of("one"), [&](Pending &response) {
    const auto bytes = response.wait(0ms);
    heard.append(reinterpret_cast<const char *>(bytes->data()), bytes->size());
  });
  const auto taken = loop.take();
  EXPECT_EQ(caller.run_ready(), 0U);
  EXPECT_FALSE(is_readable(fd, 0ms));
  loop.answer(taken[0]);
  loop.answers.wake();
  ASSERT_TRUE(is_readable(fd, 60s));
  EXPECT_EQ(caller.run_ready(), 1U);
  EXPECT_EQ(heard, "one");
  EXPECT_FALSE(loop.ring.holds(taken[0].slots.position));
  EXPECT_FALSE(is_readable(fd, 0ms));
}

TEST_F(Events, AResponseThatNobodyTakesIsDropped) {
  caller.request_then({}, [](Pending &) {});
  const auto taken = loop.take();
  loop.answer(taken[0]);
  EXPECT_EQ(caller.run_ready(), 1U);
  EXPECT_FALSE(loop.ring.holds(taken[0].slots.position));
}

TEST_F(Events, AfterACallbackThatThrowsTheOthersAreCalled) {
  int calls = 0;
  for (int i = 0; i < 3; ++i)
    caller.request_then({}, [&](Pending &) {
      if (++calls == 2)
        throw std::runtime_error("the second");
    });
  for (const auto &taken : loop.take())
    loop.answer(taken);
  EXPECT_THROW(caller.run_ready(), std::runtime_error);
  EXPECT_TRUE(is_readable(caller.fd(), 60s));
  EXPECT_EQ(caller.run_ready(), 1U);
  EXPECT_EQ(calls, 3);
}

TEST(DeadSender, CallbacksAreToldSo) {
  LoopBack loop;
  std::atomic<bool> is_over = false;
  std::vector<CallerLane> lanes;
  lanes.push_back(
      {.ring = &loop.ring, .answers = AnswerTable(loop.ring), .worker = 1, .is_over = [&] {
         return is_over.load();
       }});
  Caller caller = CallerLanes::caller(std::move(lanes), Waiting::events);
  const int fd = caller.fd();
  caller.run_ready();
  bool has_failed = false;
  for (int i = 0; i < 10; ++i)
    caller.request_then({}, [&](Pending &response) {
      try {
        response.wait(1s); // does not wait
      } catch (const rdmacommon::Error &) {
        has_failed = true;
      }
    });
  is_over = true;
  ASSERT_TRUE(is_readable(fd, 60s));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(caller.run_ready(), 10U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            800ms); // a look around each would be a second
  EXPECT_TRUE(has_failed);
}

TEST(DeadSender, OfAnotherRequestDisturbsNobody) {
  LoopBack dead, alive;
  alive.answers.status().server = 1;
  std::vector<CallerLane> lanes;
  lanes.push_back(
      {.ring = &dead.ring, .answers = AnswerTable(dead.ring), .worker = 1, .is_over = [] {
         return true;
       }});
  lanes.push_back(
      {.ring = &alive.ring, .answers = AnswerTable(alive.ring), .worker = 1, .is_over = {}});
  Caller caller = CallerLanes::caller(std::move(lanes), Waiting::events);
  std::vector<Pending> lost, waiting;
  lost.push_back(caller.request_async({}, {.server = 0}));
  waiting.push_back(caller.request_async({}, {.server = 1}));
  EXPECT_THROW(caller.wait_any(lost, 60s), rdmacommon::Error);
  EXPECT_THROW(caller.wait_any(lost, 0ms), rdmacommon::Error); // however short the limit is
  EXPECT_EQ(caller.wait_any(waiting, 300ms), std::nullopt);    // longer than it looks around
}

// A group of answers rings one bell: all that sleep for one of them are woken by one call.
TEST_F(Events, AGroupIsOneWake) {
  std::vector<Pending> all;
  for (int i = 0; i < 8; ++i)
    all.push_back(caller.request_async({}));
  const auto taken = loop.take();
  std::vector<std::thread> asleep;
  for (Pending &one : all)
    asleep.emplace_back([&one] { EXPECT_TRUE(one.wait(60s)); });
  for (const auto &one : taken)
    while (!loop.says_asleep(one))
      std::this_thread::yield();
  for (const auto &one : taken)
    loop.answer(one);
  EXPECT_EQ(loop.answers.wake().calls, 1U);
  for (std::thread &thread : asleep)
    thread.join();
}

} // namespace

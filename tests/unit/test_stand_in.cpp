// SPDX-License-Identifier: MIT
#include "stand_in.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

namespace rdmashared {
namespace {

// A loop of which nothing is there but its event.
struct StandsIn : testing::Test {
  Event happens;
  StandIn stand_in{happens.fd(), std::chrono::hours(1)};
  std::future<bool> other = std::async(std::launch::async, [this] { return stand_in.stand_by(); });

  void SetUp() override {
    while (!stand_in.stands_by())
      std::this_thread::yield();
  }
  void TearDown() override { stand_in.end(); }
};

TEST_F(StandsIn, TheLoopStaysWithItsThreadIfNothingHappens) {
  for (int i = 0; i < 100; ++i) {
    stand_in.leave();
    EXPECT_TRUE(stand_in.come_back());
  }
  stand_in.end();
  EXPECT_FALSE(other.get());
}

TEST_F(StandsIn, TheOtherThreadTakesTheLoopWhenSomethingHappens) {
  stand_in.leave();
  happens.ring();
  EXPECT_TRUE(other.get());
  EXPECT_FALSE(stand_in.stands_by());
  EXPECT_FALSE(stand_in.come_back());
}

TEST_F(StandsIn, WhatHappenedBeforeIsNotMissed) {
  happens.ring();
  stand_in.leave();
  EXPECT_TRUE(other.get());
}

TEST_F(StandsIn, WhatHappensInAHeldLoopIsForItsThread) {
  stand_in.leave();
  EXPECT_TRUE(stand_in.come_back());
  happens.ring();
  stand_in.end(); // had the other thread taken the loop, it would say so
  EXPECT_FALSE(other.get());
}

TEST(StandIn, TakesALoopThatIsLeftForLong) {
  const Event nothing;
  StandIn stand_in(nothing.fd(), std::chrono::milliseconds(1));
  std::future<bool> other = std::async(std::launch::async, [&] { return stand_in.stand_by(); });
  while (!stand_in.stands_by())
    std::this_thread::yield();
  stand_in.leave();
  EXPECT_TRUE(other.get());
}

} // namespace
} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Tests which slots and response buffers of its area a process uses.
#include "memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

using namespace rdmashared; // for tests alone

namespace {

constexpr uint32_t slots = 100;

struct Used {
  rdmacommon::File file = Area::make(
      {.slots = slots, .slot_size = 64, .long_responses = 2, .largest = 64, .longest = slots * 64});
  Area area{file.get()};
  AreaUse use{area};
};

TEST(Use, TakesNoMoreOfTheAreaThanItNeeds) {
  Used its;
  for (uint32_t i = 0; i < 1000; ++i) {
    const auto place = its.use.take(1, false);
    ASSERT_TRUE(place);
    ASSERT_LT(place->slot, slots / 2);
    its.use.release(*place);
  }
}

TEST(Use, TakesAllOfTheArea) {
  Used its;
  std::set<uint32_t> taken;
  for (uint32_t i = 0; i < slots; ++i) {
    const auto place = its.use.take(1, false);
    ASSERT_TRUE(place) << i;
    taken.insert(place->slot);
  }
  EXPECT_EQ(taken.size(), slots);
  EXPECT_EQ(*taken.rbegin(), slots - 1);
  EXPECT_FALSE(its.use.take(1, false));
  its.use.release({.slot = 77, .slots = 1});
  const auto again = its.use.take(1, false);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->slot, 77U);
}

TEST(Use, SlotsOfARequestFollowEachOther) {
  Used its;
  std::vector<AreaUse::Allocation> places;
  for (uint32_t i = 0; i < slots / 2; ++i)
    places.push_back(its.use.take(2, false).value());
  EXPECT_FALSE(its.use.take(2, false));
  its.use.release(places[10]);
  its.use.release(places[20]); // four are free, but not in one place
  EXPECT_FALSE(its.use.take(4, false));
  its.use.release(places[11]);
  const auto four = its.use.take(4, false);
  ASSERT_TRUE(four);
  EXPECT_EQ(four->slot, 20U);
  EXPECT_FALSE(Used().use.take(slots + 1, false));
  EXPECT_TRUE(Used().use.take(slots, false));
}

TEST(Use, WhatNobodyWaitsForIsFreeOnceItIsAnswered) {
  Used its;
  const auto first = its.use.take(60, true).value(), second = its.use.take(40, true).value();
  EXPECT_FALSE(its.use.take(1, true)); // no buffer
  its.use.give_up(first);
  EXPECT_FALSE(its.use.take(60, false));
  its.area.answer(first.slot).outcome = 1;
  const auto again = its.use.take(60, true);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->slot, first.slot);
  EXPECT_EQ(again->buffer, first.buffer);
  its.use.release(second);
  EXPECT_TRUE(its.use.take(40, true));
}

} // namespace

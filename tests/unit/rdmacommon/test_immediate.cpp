// SPDX-License-Identifier: MIT
#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>

using namespace rdmacommon;

namespace {

TEST(Immediate, IsInNetworkByteOrder) {
  const auto bytes =
      std::bit_cast<std::array<uint8_t, 4>>(to_immediate({.first = 0x123456, .count = 0x78}));
  EXPECT_EQ(bytes, (std::array<uint8_t, 4>{0x12, 0x34, 0x56, 0x78}));
}

TEST(Immediate, ReadsBackWhatItWrote) {
  for (const rdmacommon::Run run : std::initializer_list<rdmacommon::Run>{
           {0, 0}, {0, 255}, {0xffffff, 0}, {0xffffff, 255}, {1, 1}}) {
    const rdmacommon::Run again = from_immediate(to_immediate(run));
    EXPECT_EQ(again.first, run.first);
    EXPECT_EQ(again.count, run.count);
  }
}

TEST(Immediate, RefusesWhatDoesNotFit) {
  EXPECT_THROW(to_immediate({.first = 1U << 24, .count = 1}), Error);
  EXPECT_THROW(to_immediate({.first = 0, .count = 256}), Error);
}

} // namespace

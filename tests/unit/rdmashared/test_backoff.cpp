// SPDX-License-Identifier: MIT
// Lesson 23's pauses between two attempts to connect.
#include "lane.hpp"

#include <gtest/gtest.h>

#include <set>

using rdmashared::Backoff;
using std::chrono::milliseconds;

namespace {

TEST(Backoff, DoublesUpToItsLimitAndBeginsAnew) {
  Backoff backoff(milliseconds(200), milliseconds(3200));
  for (int round = 0; round < 2; ++round, backoff.reset())
    for (const int64_t longest : {200, 400, 800, 1600, 3200, 3200, 3200}) {
      const milliseconds pause = backoff.next();
      EXPECT_GE(pause.count(), longest / 2);
      EXPECT_LE(pause.count(), longest);
    }
  for (int i = 0; i < 100; ++i) // and never overflows
    EXPECT_LE(backoff.next(), milliseconds(3200));
}

TEST(Backoff, IsNotTheSameForAll) {
  std::set<milliseconds> pauses;
  for (int i = 0; i < 100; ++i)
    pauses.insert(Backoff(milliseconds(200), milliseconds(3200)).next());
  EXPECT_GT(pauses.size(), 10U);
}

} // namespace

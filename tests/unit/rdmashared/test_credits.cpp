// SPDX-License-Identifier: MIT
// Tests how far one side of a ring may go before the other side has taken what was sent.
#include "rings_fixture.hpp"

namespace {

TEST(Credits, AFullRingHasNoRoom) {
  Pair pair(shape_of(10, 32), 4);
  std::minstd_rand random(9);
  EXPECT_TRUE(pair.out.has_room(10));
  EXPECT_FALSE(pair.out.has_room(11));
  EXPECT_FALSE(pair.out.has_room(~uint64_t{0}));
  for (uint32_t left = 10; left > 0; --left) {
    EXPECT_TRUE(pair.out.has_room(left));
    EXPECT_FALSE(pair.out.has_room(left + 1));
    ASSERT_TRUE(pair.put(some_message(0, random)));
  }
  EXPECT_FALSE(pair.out.has_room(1));
  pair.deliver_all();
  EXPECT_FALSE(pair.out.has_room(1)); // it has been taken, and not told
  pair.give_credit();
  EXPECT_TRUE(pair.out.has_room(10));
  EXPECT_FALSE(pair.out.has_room(11));
  pair.expect_all_came();
}

TEST(Credits, ReceiverTellsBeforeTheSenderHasToWaitForever) {
  for (const uint32_t slots : {8U, 9U, 100U, 1000U}) {
    Pair pair(shape_of(slots, 32), 1);
    std::minstd_rand random(10);
    for (int i = 0; i < 3000; ++i) {
      while (!pair.put(some_message(0, random)) || !pair.deliver_one()) {
        ASSERT_TRUE(pair.in.owes_credit()) << "after " << i;
        pair.give_credit();
        ASSERT_FALSE(pair.in.owes_credit());
      }
    }
    pair.deliver_all();
    pair.expect_all_came();
  }
}

// Sends and takes slots until the receiver has told all that it tells by itself.
void have_some_traffic(Pair &pair, std::minstd_rand &random) {
  for (uint32_t left = static_cast<uint32_t>(random()) % 5000; left > 0; --left) {
    while (!pair.put(some_message(0, random)))
      pair.give_credit();
    pair.deliver_all();
    if (pair.in.owes_credit())
      pair.give_credit();
  }
}

// Nothing else moves: the receiver does not tell less than this by itself.
TEST(Credits, AMessageOfMostOfTheRingGetsItsRoom) {
  std::minstd_rand random(16);
  for (const uint32_t slots : {8U, 9U, 15U, 100U, 255U, 256U, 4096U})
    for (int i = 0; i < 10; ++i) {
      Pair pair(shape_of(slots, 32), 1 + static_cast<uint32_t>(random()) % 255);
      have_some_traffic(pair, random);
      EXPECT_TRUE(pair.out.has_room(longest_message(slots))) << slots;
    }
}

TEST(Credits, AtMostRunsAheadAreUnderWay) {
  Pair pair(shape_of(1000, 32), 1);
  std::minstd_rand random(11);
  for (uint32_t i = 0; i < runs_ahead + 10; ++i)
    ASSERT_TRUE(pair.put(some_message(0, random)));
  OutRing::Piece piece{};
  for (uint32_t i = 0; i < runs_ahead; ++i)
    ASSERT_TRUE(pair.out.next(piece));
  EXPECT_FALSE(pair.out.next(piece));
  EXPECT_FALSE(pair.out.is_empty());
  pair.out.taken(3);
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_TRUE(pair.out.next(piece));
  EXPECT_FALSE(pair.out.next(piece));
  pair.out.taken(runs_ahead + 3);
  for (uint32_t i = 0; i < 7; ++i)
    EXPECT_TRUE(pair.out.next(piece));
  EXPECT_TRUE(pair.out.is_empty());
  EXPECT_FALSE(pair.out.next(piece));
}

TEST(Credits, TakenMoreThanWasSent) {
  Pair pair(shape_of(16, 32), 1);
  std::minstd_rand random(12);
  EXPECT_THROW(pair.out.taken(1), Error);
  EXPECT_THROW(pair.out.taken(SlotRun::first_limit - 1), Error);
  ASSERT_TRUE(pair.put(some_message(0, random)));
  ASSERT_TRUE(pair.put(some_message(0, random)));
  EXPECT_THROW(pair.out.taken(1), Error); // it has been put, and not sent
  OutRing::Piece piece{};
  ASSERT_TRUE(pair.out.next(piece));
  EXPECT_THROW(pair.out.taken(2), Error);
  pair.out.taken(1);
  pair.out.taken(1);                      // the same again is no more
  EXPECT_THROW(pair.out.taken(0), Error); // less than before is very many more
  EXPECT_TRUE(pair.out.has_room(15));
  EXPECT_FALSE(pair.out.has_room(16));
}

TEST(Credits, RunsWithoutCreditAreRefused) {
  InRing many_runs(shape_of(1000, 32));
  for (uint32_t i = 0; i < runs_ahead; ++i)
    many_runs.came({.first = i, .count = 1});
  EXPECT_THROW(many_runs.came({.first = runs_ahead, .count = 1}), Error);
  InRing many_slots(shape_of(300, 32));
  many_slots.came({.first = 0, .count = 255});
  many_slots.came({.first = 255, .count = 45});
  EXPECT_THROW(many_slots.came({.first = 0, .count = 1}), Error);
}

TEST(Credits, EachCreditAllowsMoreRuns) {
  Pair pair(shape_of(300, 32), 1);
  std::minstd_rand random(17);
  for (int i = 0; i < 3; ++i) { // each time as many as may be under way: deliver_one() counts them
    for (uint32_t run = 0; run < runs_ahead; ++run)
      ASSERT_TRUE(pair.put(some_message(0, random)) && pair.deliver_one());
    pair.give_credit();
  }
  pair.expect_all_came();
}

// The counter of runs has 24 bits on the wire. So it goes round once, and a little further.
TEST(Credits, TheCounterOfRunsGoesRound) {
  const Shape shape = shape_of(512, 32);
  OutRing out(shape, 1);
  InRing in(shape);
  uint64_t came = 0, highest = 0;
  uint32_t last = 0, rounds = 0;
  const uint64_t total = SlotRun::first_limit + uint64_t{1000};
  for (uint64_t sent = 0; sent < total; ++sent) {
    if (!out.has_room(1)) {
      const uint32_t taken = in.next_credit();
      ASSERT_LT(taken, SlotRun::first_limit); // it fits into immediate data
      rounds += taken < last;
      last = taken;
      out.taken(taken);
      ASSERT_TRUE(out.has_room(1));
    }
    out.put({.id = sent, .kind = Kind::ping}, {});
    OutRing::Piece piece{};
    if (!out.next(piece)) {
      const uint32_t taken = in.next_credit();
      ASSERT_LT(taken, SlotRun::first_limit);
      rounds += taken < last;
      last = taken;
      out.taken(taken);
      ASSERT_TRUE(out.next(piece));
    }
    copy_run(out, in, piece);
    in.take(piece.run, piece.bytes, [&](const Header &header, std::span<const std::byte>) {
      came += header.id == highest++;
    });
  }
  EXPECT_EQ(came, total);
  EXPECT_EQ(rounds, 1U);
}

} // namespace

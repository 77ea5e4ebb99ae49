// SPDX-License-Identifier: MIT
// The two rings against each other, without RDMA: the test copies each run from one memory to the
// other, and delivers its immediate data.
#include "rings_fixture.hpp"

namespace {

// ---- whole messages

// @param group as the OutRing gets it
void exchange_random_messages(const Shape &shape, uint32_t group, uint32_t seed, int messages) {
  SCOPED_TRACE("slots " + std::to_string(shape.slots) + " of " + std::to_string(shape.slot_size) +
               ", group " + std::to_string(group));
  Pair pair(shape, group);
  std::minstd_rand random(seed);
  for (int sent = 0; sent < messages;) {
    const size_t most = random() % 8 == 0 ? pair.whole_ring() : shape.slot_size * size_t{3};
    const Message message = some_message(random() % (most + 1), random);
    if (random() % 3 != 0 && pair.put(message)) // else what is there goes first
      ++sent;
    else if (!pair.deliver_one())
      pair.give_credit(); // nothing is left to take: the sender may have all its slots again
    else if (random() % 4 == 0 && pair.in.owes_credit())
      pair.give_credit();
  }
  pair.deliver_all();
  pair.expect_all_came();
  pair.expect_all_slots_are_free();
}

TEST(Rings, EverythingArrivesOnceInOrderAndWhole) {
  std::minstd_rand random(3);
  uint32_t seed = 100;
  for (const uint32_t slot_size : {32U, 64U, 72U})
    for (const uint32_t slots : {8U, 13U, 100U, 255U, 257U, 601U})
      for (const uint32_t group : {1U, 1 + static_cast<uint32_t>(random()) % 255, 255U})
        exchange_random_messages(shape_of(slots, slot_size), group, ++seed, 300);
}

TEST(Rings, AMessageOverTheEndOfTheRingAndOfARun) {
  for (const uint32_t slot_size : {32U, 72U}) {
    Pair pair(shape_of(600, slot_size), 255);
    std::minstd_rand random(4);
    // 590 slots, then 20 of which 10 are at the beginning again: two runs for the second message.
    ASSERT_TRUE(pair.put(some_message(size_t{590} * slot_size - Header::bytes, random)));
    pair.deliver_all();
    pair.give_credit();
    const auto before = pair.runs.size();
    ASSERT_TRUE(pair.put(some_message(size_t{20} * slot_size - Header::bytes - 1, random)));
    pair.deliver_all();
    ASSERT_EQ(pair.runs.size(), before + 2);
    EXPECT_EQ(pair.runs[before].run.first, 590U);
    EXPECT_EQ(pair.runs[before].run.count, 10U);
    EXPECT_EQ(pair.runs[before].bytes, 10 * slot_size);
    EXPECT_EQ(pair.runs[before].messages, 1U);
    EXPECT_EQ(pair.runs[before + 1].run.first, 0U);
    EXPECT_EQ(pair.runs[before + 1].bytes, 10 * slot_size - 1); // no padding at the end
    EXPECT_EQ(pair.runs[before + 1].messages, 0U);              // none begins in it
    pair.expect_all_came();
  }
}

TEST(Rings, EachPlaceOfALongMessage) {
  std::minstd_rand random(5);
  for (uint32_t before = 0; before < 13; ++before)
    for (uint32_t bytes = 0; bytes <= 13 * 32 - Header::bytes; bytes += 3) {
      Pair pair(shape_of(13, 32), 255);
      for (uint32_t i = 0; i < before; ++i)
        ASSERT_TRUE(pair.put(some_message(0, random)));
      pair.deliver_all();
      pair.give_credit();
      ASSERT_TRUE(pair.put(some_message(bytes, random)));
      pair.deliver_all();
      pair.expect_all_came();
    }
}

TEST(Rings, KindsWithALengthOfTheirOwn) {
  Pair pair(shape_of(16, 32), 255);
  std::minstd_rand random(6);
  Message longer = some_message(100, random);
  longer.header.kind = Kind::long_request; // a ResponseBuffer stands before the bytes
  longer.header.length = 100 - ResponseBuffer::bytes;
  ASSERT_TRUE(pair.put(longer));
  Message by_data = some_message(0, random);
  by_data.header.kind = Kind::long_response; // the bytes went elsewhere
  by_data.header.length = 1 << 26;
  ASSERT_TRUE(pair.put(by_data));
  ASSERT_TRUE(pair.put(some_message(5, random)));
  pair.deliver_all();
  pair.expect_all_came();
}

TEST(Rings, AMessageIsPutTogetherFromTwoParts) {
  Pair pair(shape_of(9, 32), 255);
  std::minstd_rand random(7);
  for (uint32_t i = 0; i < 200; ++i) {
    const Message message = some_message(random() % 150, random);
    const size_t first = random() % (message.body.size() + 1);
    ASSERT_TRUE(pair.put(message, first));
    pair.deliver_all();
    pair.give_credit();
  }
  pair.expect_all_came();
}

// ---- runs

TEST(Rings, AGroupHasSoManySlotsAtMost) {
  for (const uint32_t group : {1U, 2U, 7U, 254U, 255U}) {
    Pair pair(shape_of(1000, 32), group);
    std::minstd_rand random(8);
    uint32_t messages = 0;
    for (int i = 0; i < 300; ++i)
      if (pair.put(some_message(random() % 70, random)))
        ++messages;
    pair.deliver_all();
    pair.expect_all_came();
    uint32_t begun = 0, fullest = 0;
    for (const OutRing::Piece &piece : pair.runs) {
      begun += piece.messages;
      EXPECT_LE(piece.run.count, piece.messages > 1 ? group : max_run);
      EXPECT_LE(piece.run.first + piece.run.count, 1000U); // none goes over the end
      fullest = std::max(fullest, piece.run.count);
    }
    EXPECT_EQ(begun, messages);    // each begins in one run
    EXPECT_GT(fullest + 3, group); // and runs are as long as they may be
  }
}

} // namespace

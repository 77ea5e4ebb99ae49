// SPDX-License-Identifier: MIT
// The slot ring itself: what is taken, and what comes back.
#include "ring_fixture.hpp"

#include <thread>

namespace {

TEST_F(Ring, CarriesMessagesInOrderFromOneMappingToAnother) {
  EXPECT_EQ(ring.take().count, 0u);
  put(far, 1, "one");
  put(far, 2, "");
  put(far, 1, std::string(64 * 3, 'x'));
  const SlotRun run = ring.take();
  EXPECT_EQ(run.first, 0u);
  EXPECT_EQ(run.count, 5u);
  EXPECT_EQ(read(run), (Texts{"one", "", std::string(64 * 3, 'x')}));
  ring.give_back(run);
  EXPECT_EQ(ring.take().count, 0u);
}

TEST_F(Ring, ARunEndsWhereTheRingEnds) {
  for (int i = 0; i < 14; ++i)
    put(far, 1, "a");
  ring.give_back(ring.take());
  for (int i = 0; i < 5; ++i)
    put(far, 1, std::to_string(i));
  SlotRun run = ring.take();
  EXPECT_EQ(run.first, 14u);
  EXPECT_EQ(run.count, 2u);
  run = ring.take();
  EXPECT_EQ(run.first, 0u);
  EXPECT_EQ(run.count, 3u);
}

TEST_F(Ring, AMessageIsNotSplitAtTheRingsEnd) {
  for (int lap = 0; lap < 40; ++lap) {
    put(far, 1, std::string(64 * 3, static_cast<char>('a' + lap % 26)));
    EXPECT_EQ(all(), Texts{std::string(64 * 3, static_cast<char>('a' + lap % 26))});
  }
}

TEST_F(Ring, AMessageMayBeAsLongAsTheRing) {
  put(far, 1, "in the way");
  EXPECT_FALSE(far.try_claim(1, 16 * 64));
  EXPECT_EQ(all(), Texts{"in the way"});
  put(far, 1, std::string(16 * 64, 'x'));
  EXPECT_EQ(all(), Texts{std::string(16 * 64, 'x')});
  EXPECT_THROW(far.try_claim(1, 16 * 64 + 1), Error);
}

TEST_F(Ring, ARunIsNoLongerThanAsked) {
  for (int i = 0; i < 7; ++i)
    put(far, 1, "a");
  EXPECT_EQ(ring.take(1).count, 1u);
  EXPECT_EQ(ring.take(4).count, 4u);
  EXPECT_EQ(ring.take(4).count, 2u);
  put(far, 1, std::string(64 * 3, 'x'));
  EXPECT_EQ(ring.take(1).count, 3u); // by itself
}

TEST_F(Ring, NoRunHasMoreThan255Slots) {
  const File large = SlotRing::make({.slots = 1024, .slot_size = 64});
  SlotRing one(large.get(), doorbell.get());
  for (int i = 0; i < 1024; ++i)
    put(one, 1, "a");
  std::vector<uint32_t> counts;
  for (SlotRun run; (run = one.take()).count > 0;)
    counts.push_back(run.count);
  EXPECT_EQ(counts, (std::vector<uint32_t>{255, 255, 255, 255, 4}));
}

TEST_F(Ring, AMessageOfMoreSlotsMakesARunByItself) {
  const File large = SlotRing::make({.slots = 1 << 17, .slot_size = 64});
  SlotRing one(large.get(), doorbell.get());
  EXPECT_EQ(one.longest_message(), 0xffffU * 64);
  put(one, 1, "a");
  put(one, 1, std::string(0xffff * 64, 'b'));
  put(one, 1, std::string(65, 'c'));
  EXPECT_EQ(one.take().count, 1U);
  const SlotRun run = one.take();
  EXPECT_EQ(run.count, 0xffffU);
  uint32_t at = 0;
  const SlotMessage message = one.message(run, at);
  EXPECT_EQ(at, 0xffffU);
  EXPECT_EQ(message.slots, 0xffffU);
  EXPECT_EQ(message.data.size(), 0xffffU * 64);
  EXPECT_EQ(message.data.back(), std::byte{'b'});
  EXPECT_EQ(one.take().count, 2U);
  // The rest of the ring is too short for another one, and the slots of the first are not free.
  EXPECT_FALSE(one.try_claim(1, 0xffff * 64));
  one.give_back(run);
  EXPECT_THROW(one.try_claim(1, 0xffff * 64 + 1), Error);
}

TEST(SlotWord, AsANumberAndBack) {
  for (const SlotWord &word : {SlotWord{SlotState::free, 0, 0, 0},
                               {SlotState::abandoned, 0xffff, 0, 0},
                               {SlotState::free, 0xffff, 0xffff, 0},
                               {SlotState::claimed, 1, 0xffff, 1},
                               {SlotState::ready, 0x8001, 0x8001, SlotWord::lap_limit - 1}}) {
    const SlotWord back = SlotWord::unpacked(word.packed());
    EXPECT_EQ(back.state, word.state);
    EXPECT_EQ(back.count, word.count);
    EXPECT_EQ(back.worker, word.worker);
    EXPECT_EQ(back.lap, word.lap);
  }
}

TEST_F(Ring, WaitsForTheOldestThatIsNotReady) {
  auto slow = far.try_claim(1, 5);
  put(far, 2, "quick");
  EXPECT_EQ(ring.take().count, 0u);
  std::memcpy(slow->data().data(), "slow!", 5);
  EXPECT_TRUE(slow->publish());
  EXPECT_EQ(all(), (Texts{"slow!", "quick"}));
}

TEST_F(Ring, RunsComeBackInAnyOrder) {
  for (int i = 0; i < 16; ++i)
    put(far, 1, "a");
  const SlotRun first = ring.take(8), second = ring.take(8);
  ring.give_back(second);
  ring.give_back(first);
  for (int i = 0; i < 16; ++i)
    put(far, 1, "b");
  EXPECT_FALSE(far.try_claim(1, 1));
}

TEST_F(Ring, AClaimThatIsDroppedIsPassedOver) {
  far.try_claim(1, 100).reset();
  put(far, 2, "after");
  far.try_claim(1, 1).reset();
  EXPECT_EQ(all(), Texts{"after"});
  put(far, 1, std::string(16 * 64, 'x').substr(0, 64 * 12)); // nothing is lost
}

TEST_F(Ring, WhatADeadWorkerClaimedComesBackAndWhatItPublishedArrives) {
  put(far, 1, "published");
  auto dead = far.try_claim(1, 64 * 4);
  put(far, 2, "behind it");
  EXPECT_EQ(all(), Texts{"published"});
  EXPECT_EQ(ring.reclaim(2), 0u);
  EXPECT_EQ(all(), Texts{});
  EXPECT_EQ(ring.reclaim(1), 4u);
  EXPECT_EQ(all(), Texts{"behind it"});
  EXPECT_FALSE(dead->publish());
}

// A worker that dies between its claim and the step of the head, which is what the tests set back.

TEST_F(Ring, TheHeadIsMovedForWhoeverDiedBeforeMovingIt) {
  std::atomic<uint64_t> &head = header.head;
  auto claim = far.try_claim(1, 64 * 3);
  head = 0;
  EXPECT_EQ(far.try_claim(2, 1)->position(), 3u); // by the next worker; dropped
  EXPECT_TRUE(claim->publish());
  EXPECT_EQ(all().size(), 1u);

  put(far, 1, "published");
  head = 4;
  EXPECT_EQ(all(), Texts{"published"}); // by the consumer, which takes it
  EXPECT_EQ(head, 5u);

  auto dead = far.try_claim(1, 64 * 3);
  head = 5;
  EXPECT_EQ(ring.reclaim(1), 3u);
  EXPECT_EQ(all(), Texts{}); // by the consumer, which passes over it
  EXPECT_EQ(head, 8u);
  put(far, 2, "after");
  EXPECT_EQ(all(), Texts{"after"});
  EXPECT_FALSE(dead->publish());
}

TEST_F(Ring, ALateTwinPublishesNothing) {
  auto late = far.try_claim(1, 1);
  ring.reclaim(1);
  EXPECT_EQ(all(), Texts{});
  for (int i = 0; i < 15; ++i)
    put(far, 2, "a");
  EXPECT_EQ(all().size(), 15u);
  auto now = far.try_claim(1, 1); // the same slot, even by the same worker, one lap on
  ASSERT_EQ(now->position() % 16, late->position() % 16);
  EXPECT_FALSE(late->publish());
  EXPECT_EQ(ring.take().count, 0u);
  EXPECT_TRUE(now->publish());
  EXPECT_EQ(ring.take().count, 1u);
}

TEST_F(Ring, RingsOnlyForTheMessageThatIsSleptFor) {
  put(far, 1, "a");
  EXPECT_FALSE(has_rung());
  EXPECT_FALSE(ring.arm());
  ring.disarm();
  ring.take();
  auto first = far.try_claim(1, 1);
  EXPECT_TRUE(ring.arm());
  put(far, 1, "b");
  EXPECT_FALSE(has_rung());
  EXPECT_TRUE(first->publish());
  EXPECT_TRUE(has_rung());
  EXPECT_EQ(far.rings(), 1u);
  ring.disarm();
  put(far, 1, "c");
  EXPECT_FALSE(has_rung());
}

TEST_F(Ring, AnAbandonedClaimRings) {
  auto claim = far.try_claim(1, 1);
  EXPECT_TRUE(ring.arm());
  claim.reset();
  EXPECT_TRUE(has_rung());
}

TEST_F(Ring, SaysWhereItsHeadIsAndWhetherSomebodyWaits) {
  EXPECT_EQ(ring.head(), 0u);
  put(far, SlotRing::own_worker, "mine");
  put(far, 1, std::string(64 * 15, 'x'));
  EXPECT_EQ(ring.head(), 16u);
  const auto is_waited_for = [&] { return (header.room & 1) != 0; };
  EXPECT_FALSE(is_waited_for());
  std::thread waits([&] { far.claim(1, 1, seconds(20)); });
  const auto deadline = steady_clock::now() + seconds(20);
  while (!is_waited_for() && steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_TRUE(is_waited_for());
  const SlotRun run = ring.take();
  uint32_t at = 0;
  EXPECT_EQ(ring.message(run, at).worker, SlotRing::own_worker);
  ring.give_back(run);
  waits.join();
  EXPECT_EQ(ring.head(), 17u);
  EXPECT_EQ(ring.take().count, 0u); // what was dropped is passed over, and given back
}

// A process that dies while it gives a run back has freed the first ones of its messages; of the
// next one, some of its slots, but not the first.

TEST_F(Ring, ARunMayBeGivenBackAgain) {
  uint32_t lap = 0;
  for (const auto &[begin, end] : {std::pair{0U, 0U}, {1, 2}, {1, 3}, {0, 3}, {0, 4}, {0, 6}}) {
    put(far, 1, std::string(64 * 3, 'a'));
    put(far, 2, "b");
    put(far, 2, std::string(64 * 2, 'c'));
    const SlotRun run = ring.take();
    ASSERT_EQ(run.count, 6u);
    for (int i = 0; i < 10; ++i)
      put(far, 3, "in the way");
    const SlotRun others = ring.take();
    ++lap;
    if (begin == 0 && end == 4) // and a slot of the last message
      controls[5].word =
          SlotWord{.state = SlotState::free, .count = 0, .worker = 0, .lap = lap}.packed();
    for (uint32_t slot = begin; slot < end; ++slot)
      controls[slot].word =
          SlotWord{.state = SlotState::free, .count = 0, .worker = 0, .lap = lap}.packed();
    // What is free may be claimed, and that is no reason to free it again.
    auto claim = far.try_claim(3, 64 * 3);
    EXPECT_EQ(claim.has_value(), begin == 0 && end >= 3);
    far.give_back(run);
    if (!claim)
      claim.emplace(std::move(*far.try_claim(3, 64 * 3)));
    ring.give_back(run);
    EXPECT_TRUE(claim->publish());
    ring.give_back(others);
    EXPECT_EQ(all().size(), 1u);
    for (int i = 0; i < 13; ++i)
      put(far, 1, "no slot is lost");
    EXPECT_EQ(all().size(), 13u);
    ++lap;
  }
}

TEST_F(Ring, APartOfARunMayBeGivenBackAndThenTheWholeOfIt) {
  put(far, 1, std::string(64 * 3, 'a'));
  put(far, 2, "b");
  const SlotRun run = ring.take();
  far.give_back({.position = run.position, .first = run.first, .count = 3}); // by worker 1
  for (int i = 0; i < 12; ++i)
    put(far, 3, "in the way");
  auto next = far.try_claim(3, 64 * 3);
  ASSERT_TRUE(next);
  EXPECT_FALSE(far.try_claim(3, 1)); // worker 2 has died
  ring.give_back(run);
  EXPECT_TRUE(next->publish());
  EXPECT_EQ(all().size(), 13u);
}

TEST_F(Ring, WhoeverWaitsIsWokenByWhatIsGivenBackAgain) {
  std::atomic<uint32_t> &room = header.room;
  put(far, 1, "a");
  const SlotRun run = ring.take();
  ring.give_back(run); // and died before it woke anybody
  room |= 1;
  const uint32_t before = room;
  ring.give_back(run);
  EXPECT_NE(room, before);
}

TEST_F(Ring, AFullRingIsWaitedFor) {
  for (int i = 0; i < 16; ++i)
    put(far, 1, "a");
  EXPECT_THROW(far.claim(1, 1, milliseconds(20)), Error);
  EXPECT_THROW(far.claim(1, 1, seconds(20), [] { return true; }), Error);
  std::atomic<int> claimed = 0;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i)
    waiting.emplace_back([&] {
      far.claim(1, 1, seconds(20));
      ++claimed;
    });
  ring.give_back(ring.take());
  for (std::thread &thread : waiting)
    thread.join();
  EXPECT_EQ(claimed, 3);
}

} // namespace

// SPDX-License-Identifier: MIT
// Messages that keep their slots for long: the ring goes round them.
#include "ring_fixture.hpp"

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <thread>

namespace {

struct Passing : Ring {
  SlotRun taken_one() {
    const SlotRun run = ring.take(1);
    EXPECT_GT(run.count, 0U);
    return run;
  }
  // A message in slot 0 that is held. All other slots have been used once, and are free.
  SlotRun held_for_a_lap() {
    put(far, 1, "held");
    const SlotRun held = ring.take();
    for (int i = 0; i < 15; ++i)
      put(far, 1, "x");
    EXPECT_EQ(all().size(), 15U);
    return held;
  }
};

TEST_F(Passing, TheRingGoesOnAroundAHeldMessage) {
  put(far, 1, "before");
  put(far, 1, std::string(64 * 3, 'h'));
  put(far, 1, "behind");
  EXPECT_EQ(read(ring.take(1)), Texts{"before"});
  const SlotRun held = taken_one();
  ring.give_back(taken_one());
  ring.give_back({.position = 0, .first = 0, .count = 1});
  for (int lap = 0; lap < 40; ++lap) {
    for (int i = 0; i < 13; ++i)
      put(far, 2, "x");
    EXPECT_FALSE(far.try_claim(2, 1));
    EXPECT_EQ(all().size(), 13U) << lap;
  }
  EXPECT_TRUE(ring.holds(held.position));
  EXPECT_EQ(read(held), Texts{std::string(64 * 3, 'h')});
  ring.give_back(held);
  EXPECT_FALSE(ring.holds(held.position));
  ring.give_back(held); // is nothing any more
  for (int lap = 0; lap < 3; ++lap) {
    for (int i = 0; i < 16; ++i)
      put(far, 2, "x");
    EXPECT_FALSE(far.try_claim(2, 1));
    EXPECT_EQ(all().size(), 16U);
  }
}

TEST_F(Passing, FreeSlotsThatAreTooFewAreLeftOut) {
  std::deque<SlotRun> held;
  for (int i = 0; i < 16; ++i)
    put(far, 1, "h");
  for (int i = 0; i < 16; ++i)
    held.push_back(taken_one());
  for (const int slot : {2, 3, 7, 8, 9, 12}) // two free ones, three, and one
    ring.give_back(held[static_cast<size_t>(slot)]);
  put(far, 2, std::string(64 * 3, 'a'));
  EXPECT_FALSE(far.try_claim(2, 64 * 3));
  SlotRun run = ring.take();
  EXPECT_EQ(run.first, 7U);
  EXPECT_EQ(run.count, 3U);
  EXPECT_FALSE(far.try_claim(2, 64 * 3));
  put(far, 2, std::string(64 * 2, 'b')); // those that were left out are free in the next lap
  run = ring.take();
  EXPECT_EQ(run.first, 2U);
  EXPECT_EQ(run.count, 2U);
  put(far, 2, "c");
  EXPECT_EQ(ring.take().first, 12U);
}

TEST_F(Passing, WhatHasNotBeenTakenIsNotPassed) {
  for (int i = 0; i < 16; ++i)
    put(far, 1, "h");
  EXPECT_FALSE(far.try_claim(2, 1));
  ring.take(1);
  EXPECT_FALSE(far.try_claim(2, 1));
  EXPECT_EQ(ring.head(), 16U);
  const SlotRun second = ring.take(1);
  ring.give_back(second);
  put(far, 2, "second");
  EXPECT_FALSE(far.try_claim(2, 1));
}

TEST_F(Passing, AFullRingStaysWhereItIs) {
  for (int i = 0; i < 16; ++i)
    put(far, 1, "h");
  ring.take();
  for (int i = 0; i < 10; ++i)
    EXPECT_FALSE(far.try_claim(2, 1));
  EXPECT_EQ(ring.head(), 16U);
}

TEST_F(Passing, TheConsumerThatSleepsBeforeAHeldMessageIsWoken) {
  const SlotRun held = held_for_a_lap();
  EXPECT_TRUE(ring.arm());
  put(far, 2, "next"); // not the slot that the consumer waits for
  EXPECT_TRUE(has_rung());
  ring.disarm();
  EXPECT_EQ(all(), Texts{"next"});
  EXPECT_TRUE(ring.arm());
  ring.give_back(held);
}

// The message is passed, given back, and claimed in the next lap, before the consumer comes to
// where it was passed.
TEST_F(Passing, TheConsumerComesLate) {
  const SlotRun held = held_for_a_lap();
  EXPECT_TRUE(ring.arm());
  std::deque<SlotRing::Claim> claims;
  for (int i = 0; i < 15; ++i)
    claims.push_back(std::move(*far.try_claim(2, 1)));
  ring.give_back(held);
  claims.push_back(std::move(*far.try_claim(3, 1))); // where the held one was
  EXPECT_EQ(ring.reclaim(3), 1U);
  EXPECT_FALSE(claims.back().publish());
  claims.pop_back();
  for (SlotRing::Claim &claim : claims)
    EXPECT_TRUE(claim.publish());
  EXPECT_FALSE(ring.arm());
  EXPECT_EQ(all().size(), 15U);
  for (int i = 0; i < 16; ++i)
    put(far, 2, "no slot is lost");
  EXPECT_EQ(all().size(), 16U);
}

TEST_F(Passing, AWorkerThatDiesWhileItPassesStopsNobody) {
  const SlotRun held = held_for_a_lap();
  put(far, 2, "a");
  EXPECT_EQ(ring.head(), 18U);
  header.head = 16; // the held one has been passed, and the head has not been moved
  put(far, 2, "b");
  EXPECT_EQ(ring.head(), 19U);
  header.head = 16;
  ring.give_back(held); // then it is free for the lap after this one
  put(far, 2, "c");
  EXPECT_EQ(ring.head(), 20U);
  EXPECT_EQ(all(), (Texts{"a", "b", "c"}));
}

TEST_F(Passing, WhatComesBackTwiceDoesNotFreeAnothersSlots) {
  put(far, 1, "first");
  const SlotRun first = ring.take();
  ring.give_back(first);
  for (int i = 0; i < 15; ++i)
    put(far, 1, "x");
  EXPECT_EQ(all().size(), 15U);
  put(far, 2, "second"); // the same slot
  const SlotRun second = ring.take();
  for (int i = 0; i < 16; ++i)
    EXPECT_EQ(far.try_claim(1, 1).has_value(), i < 15); // given up at once
  EXPECT_EQ(all().size(), 0U);
  for (int i = 0; i < 15; ++i)
    put(far, 1, "x"); // goes round it
  EXPECT_TRUE(ring.holds(second.position));
  ring.give_back(first);
  EXPECT_TRUE(ring.holds(second.position));
  EXPECT_EQ(read(second), Texts{"second"});
}

// Two give the same run back at the same time. The ring asks for one after the other, but loses no
// slot.
TEST_F(Passing, GivenBackByTwoWhileItIsPassed) {
  constexpr int rounds = 20'000, end = rounds + 1;
  SlotRun held;
  std::atomic<int> begun{0}, done{0};
  std::thread other([&] {
    for (int round = 1; round < end; done.store(round++)) {
      while (begun.load() < round)
        std::this_thread::yield();
      if (begun.load() == end)
        return;
      far.give_back(held);
    }
  });
  const auto carries = [&](const std::string &text) {
    put(far, 2, text);
    return all().size() == 1;
  };
  bool works = true;
  for (int round = 1; round <= rounds && works; ++round) {
    while (works && ring.head() % 16 != 0) // so that the message begins in slot 0
      works = carries("x");
    put(far, 1, std::string(64 * 12, 'h'));
    held = ring.take();
    works = works && carries(std::string(64 * 4, 'x'));
    begun.store(round);
    put(far, 2, "x"); // passes the message, unless it is free already
    ring.give_back(held);
    while (done.load() != round)
      std::this_thread::yield();
    works = works && all().size() == 1;
  }
  begun.store(end);
  other.join();
  EXPECT_TRUE(works);
}

// A worker can write nonsense. The consumer must not be busy with it for hours.
TEST_F(Passing, WordsOfALapFarAheadAreNotFollowed) {
  for (int slot = 0; slot < 16; ++slot)
    controls[slot].word =
        SlotWord{
            .state = SlotState::free, .count = 0, .worker = 0, .lap = SlotWord::lap_limit / 2 - 1}
            .packed();
  EXPECT_EQ(ring.take().count, 0U);
  EXPECT_EQ(ring.head(), 0U);
  header.head = ~uint64_t{0};
  ring.reclaim(1);
}

// Whatever is held for however long: no message is lost or torn, and all slots come back.
TEST_F(Passing, InAnyOrder) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const File memory = SlotRing::make(small);
    SlotRing near(memory.get(), doorbell.get()), other(memory.get(), doorbell.get());
    std::minstd_rand random(seed);
    const auto below = [&](size_t limit) { return static_cast<uint32_t>(random() % limit); };
    std::list<std::pair<SlotRing::Claim, uint32_t>> claims;
    std::map<uint64_t, uint32_t> order;             // position -> length, of what is published
    std::vector<std::pair<SlotRun, uint32_t>> held; // single messages
    const auto fill = [](uint32_t length) { return static_cast<std::byte>(length * 7); };
    for (int step = 0; step < 400; ++step) {
      const uint32_t what = below(8);
      if (what < 3) {
        const uint32_t length = 1 + below(64 * 5);
        if (auto claim = other.try_claim(1 + below(3), length))
          claims.emplace_back(std::move(*claim), length);
      } else if (what == 3 && !claims.empty()) { // in any order
        const auto one = std::next(claims.begin(), below(claims.size()));
        std::memset(one->first.data().data(), static_cast<int>(fill(one->second)), one->second);
        order[one->first.position()] = one->second;
        ASSERT_TRUE(one->first.publish());
        claims.erase(one);
      } else if (what == 4 && !claims.empty() && below(4) == 0) {
        claims.erase(std::next(claims.begin(), below(claims.size()))); // given up
      } else if (what == 5) {
        const SlotRun run = near.take(1 + below(8));
        for (uint32_t at = 0; at < run.count;) {
          const uint64_t position = run.position + at;
          const SlotMessage message = near.message(run, at);
          ASSERT_FALSE(order.empty());
          ASSERT_EQ(order.begin()->first, position);
          ASSERT_EQ(order.begin()->second, message.data.size());
          held.push_back({{position, message.slot, message.slots}, order.begin()->second});
          order.erase(order.begin());
        }
      } else if (what > 5 && !held.empty()) {
        const auto one = held.begin() + below(held.size());
        const std::span<std::byte> data =
            near.data().subspan(size_t{one->first.first} * 64, one->second);
        for (const std::byte byte : data)
          ASSERT_EQ(byte, fill(one->second));
        EXPECT_TRUE(near.holds(one->first.position));
        (below(2) == 0 ? near : other).give_back(one->first);
        if (below(3) == 0)
          near.give_back(one->first);
        EXPECT_FALSE(near.holds(one->first.position));
        held.erase(one);
      }
    }
    claims.clear();
    for (SlotRun run; (run = near.take()).count > 0;)
      near.give_back(run);
    for (const auto &[run, length] : held)
      near.give_back(run);
    for (int lap = 0; lap < 2; ++lap) {
      for (int i = 0; i < 16; ++i)
        ASSERT_NO_FATAL_FAILURE(put(other, 1, "a"));
      uint32_t slots = 0;
      for (SlotRun run; (run = near.take()).count > 0; near.give_back(run))
        slots += run.count;
      ASSERT_EQ(slots, 16U);
    }
  }
}

// ---- quotas

struct Quota : testing::Test {
  File memory = SlotRing::make({.slots = 16, .slot_size = 64, .quota = 6});
  File doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  SlotRing ring{memory.get(), doorbell.get()}, far{memory.get(), doorbell.get()};
};

TEST_F(Quota, AWorkerThatHoardsLeavesRoomForTheOthers) {
  for (int i = 0; i < 6; ++i)
    Ring::put(far, 1, "mine");
  EXPECT_FALSE(far.try_claim(1, 1));
  const SlotRun hoard = ring.take();
  EXPECT_EQ(hoard.count, 6U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(far.try_claim(1, 1));
    Ring::put(far, 2, std::string(64 * 6, 'x'));
    EXPECT_FALSE(far.try_claim(2, 1));
    ring.give_back(ring.take());
  }
  ring.give_back({.position = hoard.position, .first = hoard.first, .count = 2});
  EXPECT_FALSE(far.try_claim(1, 64 * 3));
  Ring::put(far, 1, std::string(64 * 2, 'x'));
  EXPECT_FALSE(far.try_claim(1, 1));
  ring.give_back(hoard);
  EXPECT_FALSE(far.try_claim(1, 64 * 5));
  EXPECT_TRUE(far.try_claim(1, 64 * 4));
}

TEST_F(Quota, HoldsForThreadsThatClaimAtTheSameTime) {
  std::atomic<int> held = 0, most = 0, ended = 0;
  const auto claim_often = [&] {
    for (int claims = 0; claims < 300'000;)
      if (auto claim = far.try_claim(1, 64 * 4)) {
        ++claims;
        const int now = held += 4;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);)
          ;
        held -= 4;
      }
    ++ended;
  };
  std::jthread one(claim_often), other(claim_often);
  while (ended < 2)
    ring.take(); // frees what was given up
  EXPECT_EQ(most, 4);
}

// It looks for room while it holds none of the quota: the other thread of its process has all of
// it.
TEST(QuotaOfAThread, IsNotLessWhileAnotherLooksForRoom) {
  const File memory = SlotRing::make({.slots = 1024, .slot_size = 64, .quota = 512});
  const File doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  SlotRing ring(memory.get(), doorbell.get()), far(memory.get(), doorbell.get());
  std::vector<SlotRun> kept; // of another worker: so there are never 400 free slots in a row
  for (int i = 0; i < 4; ++i) {
    Ring::put(far, 2, "kept");
    kept.push_back(ring.take());
    for (int j = 0; j < 249; ++j)
      far.try_claim(2, 1).reset();
    ring.take();
  }
  std::atomic<bool> is_over = false;
  std::jthread other([&] {
    while (!is_over)
      EXPECT_FALSE(far.try_claim(1, 64 * 400));
  });
  bool has_room = true;
  for (int i = 0; i < 100'000 && has_room; ++i) {
    has_room = far.try_claim(1, 64 * 200).has_value();
    ring.take();
  }
  is_over = true;
  EXPECT_TRUE(has_room);
}

TEST_F(Quota, CountsWhatIsGivenUp) {
  for (int i = 0; i < 20; ++i)
    far.try_claim(1, 64 * 2).reset();
  for (SlotRun run; (run = ring.take()).count > 0;)
    ADD_FAILURE();
  EXPECT_TRUE(far.try_claim(1, 64 * 6));
  ring.take();
  auto claim = far.try_claim(2, 64 * 4); // and dies
  EXPECT_EQ(ring.reclaim(2), 4U);
  EXPECT_FALSE(far.try_claim(2, 64 * 3));
  ring.take();
  EXPECT_TRUE(far.try_claim(2, 64 * 6));
}

TEST_F(Quota, CountsAnewWhenAWorkerHasDied) {
  SharedMemory raw(memory.get(), static_cast<size_t>(lseek(memory.get(), 0, SEEK_END)));
  auto *base = static_cast<std::byte *>(raw.data());
  auto *held =
      reinterpret_cast<SlotsHeld *>(base + reinterpret_cast<RingHeader *>(base)->layout.held);
  Ring::put(far, 1, std::string(64 * 2, 'x'));
  EXPECT_EQ(held[1].slots, 2);
  held[1].slots = 6; // it has died after it gave slots back, and before it counted that
  EXPECT_FALSE(far.try_claim(1, 64));
  ring.reclaim(1);
  EXPECT_EQ(held[1].slots, 2);
  ring.give_back(ring.take());
  EXPECT_EQ(held[1].slots, 0);
}

TEST_F(Quota, CountsWhatADeadWorkerHasClaimedAtTheHead) {
  SharedMemory raw(memory.get(), static_cast<size_t>(lseek(memory.get(), 0, SEEK_END)));
  auto *base = static_cast<std::byte *>(raw.data());
  auto *header = reinterpret_cast<RingHeader *>(base);
  auto *held = reinterpret_cast<SlotsHeld *>(base + header->layout.held);
  const auto claim = far.try_claim(1, 64 * 2);
  header->head = 0; // it has died before it moved the head
  EXPECT_EQ(ring.reclaim(1), 2U);
  EXPECT_EQ(held[1].slots, 2);
  ring.take(); // passes over it
  EXPECT_EQ(held[1].slots, 0);
}

TEST_F(Quota, IsTheLongestMessage) {
  EXPECT_EQ(far.longest_message(), 6U * 64);
  EXPECT_THROW(far.try_claim(1, 6 * 64 + 1), Error);
}

TEST_F(Quota, TheErrorSaysThatItIsTheQuota) {
  Ring::put(far, 1, std::string(64 * 6, 'x'));
  const auto why = [&](uint32_t worker) {
    try {
      far.claim(worker, 64 * 6, milliseconds(1));
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(why(1).find("quota"), std::string::npos) << why(1);
  Ring::put(far, 2, std::string(64 * 6, 'x'));
  EXPECT_NE(why(3).find("stays full"), std::string::npos) << why(3);
}

} // namespace

// SPDX-License-Identifier: MIT
// Runs of a peer that means no good: they end in an Error, or in messages that lie within the run.
#include "rings_fixture.hpp"

#include <array>

namespace {

constexpr uint32_t slots = 10, slot_size = 32;

// A message at a slot, as somebody writes it who is not OutRing.
struct Forged {
  InRing in{shape_of(slots, slot_size)};
  uint32_t came = 0;

  void write(uint32_t slot, uint32_t length, Kind kind = Kind::request) {
    std::array<std::byte, Header::bytes> wire;
    to_wire(wire, Header{.length = length, .kind = kind});
    std::ranges::copy(wire, in.memory().data() + size_t{slot} * slot_size);
  }
  void take(SlotRun run, uint32_t length) {
    in.take(run, length, [this](const Header &, std::span<const std::byte>) { ++came; });
  }
};

TEST(Runs, OnlyTheOneThatMustComeNext) {
  for (const SlotRun wrong :
       {SlotRun{1, 1}, SlotRun{9, 1}, SlotRun{10, 1}, SlotRun{SlotRun::first_limit - 1, 1},
        SlotRun{0, 0}, SlotRun{0, 11}, SlotRun{0, 255}}) {
    Forged forged;
    EXPECT_THROW(forged.take(wrong, std::max(wrong.count, 1U) * slot_size), Error)
        << wrong.first << " " << wrong.count;
    EXPECT_EQ(forged.came, 0U);
  }
  Forged forged;
  forged.take({0, 1}, Header::bytes);
  EXPECT_THROW(forged.take({0, 1}, Header::bytes), Error); // the same again
  forged.take({1, 8}, 8 * slot_size);
  EXPECT_EQ(forged.came, 9U);                              // zeros are messages without a body
  EXPECT_THROW(forged.take({9, 2}, 2 * slot_size), Error); // over the end
  forged.take({9, 1}, Header::bytes);
  EXPECT_THROW(forged.take({10, 1}, Header::bytes), Error); // the ring has gone round
  forged.take({0, 1}, Header::bytes);
  EXPECT_EQ(forged.came, 11U);
}

TEST(Runs, ItsBytesEndInItsLastSlot) {
  for (const uint32_t count : {1U, 2U, 5U, 10U}) {
    for (const uint32_t wrong :
         {0U, (count - 1) * slot_size, count * slot_size + 1, ~uint32_t{0}}) {
      Forged forged;
      EXPECT_THROW(forged.take({0, count}, wrong), Error) << wrong << " of " << count;
    }
    Forged whole;
    whole.take({0, count}, count * slot_size);
    EXPECT_EQ(whole.came, count);
    Forged least;
    EXPECT_THROW(least.take({0, count}, (count - 1) * slot_size + 1), Error); // no header
    Forged enough;
    enough.take({0, count}, (count - 1) * slot_size + Header::bytes);
    EXPECT_EQ(enough.came, count);
  }
}

TEST(Runs, AMessageThatIsLongerThanTheRing) {
  constexpr uint32_t most = slots * slot_size - Header::bytes;
  for (const uint32_t length : {most + 1, 1U << 31, ~uint32_t{0}}) {
    Forged forged;
    forged.write(0, length);
    EXPECT_THROW(forged.take({0, 1}, slot_size), Error) << length;
  }
  for (const uint32_t length : {most - ResponseBuffer::bytes + 1, ~uint32_t{0}}) {
    Forged forged; // the buffer counts, too, and nothing overflows
    forged.write(0, length, Kind::long_request);
    EXPECT_THROW(forged.take({0, 1}, slot_size), Error) << length;
  }
  Forged longest;
  longest.write(0, most);
  longest.take({0, slots}, slots * slot_size);
  EXPECT_EQ(longest.came, 1U);
  longest.write(0, most - ResponseBuffer::bytes, Kind::long_request);
  longest.take({0, slots}, slots * slot_size);
  EXPECT_EQ(longest.came, 2U);
  longest.write(0, ~uint32_t{0}, Kind::long_response); // the length is of other bytes
  longest.take({0, 1}, Header::bytes);
  EXPECT_EQ(longest.came, 3U);
}

TEST(Runs, AMessageThatEndsBeforeItsLength) {
  Forged at_once;
  at_once.write(0, 100);
  EXPECT_THROW(at_once.take({0, 2}, slot_size + 5), Error);
  Forged behind_another;
  behind_another.write(0, 0);
  behind_another.write(1, 100);
  EXPECT_THROW(behind_another.take({0, 2}, slot_size + Header::bytes), Error);
  EXPECT_EQ(behind_another.came, 1U);
  Forged later;
  later.write(0, 100); // needs 4 slots
  later.take({0, 1}, slot_size);
  later.take({1, 2}, 2 * slot_size);
  EXPECT_THROW(later.take({3, 1}, 27), Error); // 124 are 3 slots and 28 bytes
  EXPECT_EQ(later.came, 0U);
  Forged whole;
  whole.write(0, 100);
  whole.take({0, 1}, slot_size);
  whole.take({1, 2}, 2 * slot_size);
  whole.take({3, 1}, 28);
  EXPECT_EQ(whole.came, 1U);
  whole.take({4, 1}, Header::bytes); // and the next message begins a slot of its own
  EXPECT_EQ(whole.came, 2U);
}

TEST(Runs, TheRingKeepsACopyOfAMessageThatGoesOn) {
  Forged forged;
  forged.write(0, 60);
  forged.take({0, 1}, slot_size);
  forged.write(0, ~uint32_t{0}); // too late
  forged.in.memory()[Header::bytes] = std::byte{77};
  bool came = false;
  forged.in.take({1, 2}, 20 + slot_size, [&](const Header &header, auto bytes) {
    EXPECT_EQ(header.length, 60U);
    EXPECT_EQ(bytes.size(), 60U);
    EXPECT_EQ(bytes[0], std::byte{0});
    came = true;
  });
  EXPECT_TRUE(came);
}

// ---- whatever comes

struct Tally {
  int runs = 0, messages = 0, errors = 0;
};

// Writes a header that is a little wrong, or only noise, and delivers a run that is nearly right.
void be_hostile(std::minstd_rand &random, Tally &tally) {
  const Shape shape = shape_of(8 + random() % 30, std::array{32U, 64U, 72U}[random() % 3]);
  InRing in(shape);
  uint32_t next = 0;
  size_t most = in.memory().size();
  try {
    for (int turn = 0; turn < 40; ++turn) {
      const auto some = [&random](uint32_t below) {
        return static_cast<uint32_t>(random()) % below;
      };
      SlotRun run{.first = next, .count = 1 + some(std::min(shape.slots - next, 6U))};
      uint32_t length = run.count * shape.slot_size - (some(3) ? 0 : some(shape.slot_size));
      for (uint32_t i = 0; i < run.count; ++i) {
        std::array<std::byte, Header::bytes> wire;
        to_wire(wire, Header{.length = some(10) ? some(shape.slot_size * 4) : ~some(600),
                             .kind = static_cast<Kind>(some(13))});
        std::ranges::copy(wire, in.memory().data() + size_t{next + i} * shape.slot_size);
      }
      if (some(4) == 0)
        in.memory()[some(static_cast<uint32_t>(most))] = static_cast<std::byte>(random());
      if (some(60) == 0)
        run.first = some(3) ? some(shape.slots + 2) : static_cast<uint32_t>(random());
      if (some(60) == 0)
        run.count = some(256);
      if (some(60) == 0)
        length = static_cast<uint32_t>(random()) * 3;
      ++tally.runs;
      unsigned sum = 0;
      in.take(run, length, [&](const Header &header, std::span<const std::byte> bytes) {
        ++tally.messages;
        ASSERT_LE(bytes.size(), most - Header::bytes);
        ASSERT_EQ(bytes.size(), header.kind == Kind::long_response ? 0
                                : header.kind == Kind::long_request
                                    ? size_t{header.length} + ResponseBuffer::bytes
                                    : header.length);
        for (const std::byte each : bytes) // the address sanitizer looks whether they are there
          sum += static_cast<unsigned>(each);
      });
      ASSERT_LT(sum, ~0U);
      ASSERT_EQ(run.first, next); // or it would have thrown
      next = run.first + run.count == shape.slots ? 0 : run.first + run.count;
    }
  } catch (const Error &) {
    ++tally.errors;
  }
}

TEST(RunsFuzz, NothingThatAPeerWritesDoesHarm) {
  std::minstd_rand random(13);
  Tally tally;
  for (int i = 0; i < 30'000 && !testing::Test::HasFailure(); ++i)
    be_hostile(random, tally);
  EXPECT_GT(tally.errors, 3000);
  EXPECT_GT(tally.messages, 10'000);
  EXPECT_GT(tally.runs, 30'000);
}

TEST(RunsFuzz, NoiseDoesNoHarm) {
  std::minstd_rand random(14);
  int errors = 0;
  for (int i = 0; i < 20'000; ++i) {
    InRing in(shape_of(slots, slot_size));
    for (std::byte &each : in.memory())
      each = static_cast<std::byte>(random() >> 5);
    try {
      in.take({static_cast<uint32_t>(random()) % 2, static_cast<uint32_t>(random()) % 12},
              static_cast<uint32_t>(random()) % 400, [](const Header &, auto) {});
    } catch (const Error &) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 1000);
}

TEST(RunsFuzz, ASenderBelievesNoCountThatCannotBe) {
  std::minstd_rand random(15);
  for (int i = 0; i < 3000; ++i) {
    OutRing out(shape_of(slots, slot_size), 1 + static_cast<uint32_t>(random()) % 4);
    uint32_t sent = 0, taken = 0, put = 0;
    for (int turn = 0; turn < 40; ++turn) {
      OutRing::Piece piece{};
      if (random() % 2 && out.has_room(1))
        ++put, out.put({.kind = Kind::ping}, {});
      else if (out.next(piece))
        ++sent;
      const uint32_t said = random() % 8 ? taken : (taken + static_cast<uint32_t>(random()) % 6);
      try {
        out.taken(said);
        ASSERT_LE(said, sent);
        taken = said;
      } catch (const Error &) {
        ASSERT_GT(said, sent);
      }
      ASSERT_FALSE(out.has_room(slots + uint64_t{1})); // it gets no slot twice
    }
    ASSERT_GE(put, sent);
  }
}

} // namespace

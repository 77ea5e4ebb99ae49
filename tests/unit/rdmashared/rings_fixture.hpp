// SPDX-License-Identifier: MIT
// Two rings and nothing between them, for tests.
#pragma once

#include "wire.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

using namespace rdmashared; // for tests alone
using rdmacommon::Error;
using SlotRun = rdmacommon::Run; // every test has a Run() of its own

inline Shape shape_of(uint32_t slots, uint32_t slot_size) {
  return {.slots = slots, .slot_size = slot_size, .window = 8, .long_responses = 0, .largest = 0};
}

struct Message {
  Header header;
  std::vector<std::byte> body;
};

// @param bytes behind the header
inline Message some_message(size_t bytes, std::minstd_rand &random) {
  Message made{.header = {.length = static_cast<uint32_t>(bytes),
                          .max_response = static_cast<uint32_t>(random()),
                          .id = random() * uint64_t{random()},
                          .limit_ms = static_cast<uint32_t>(random()),
                          .kind = Kind::request,
                          .service = static_cast<uint8_t>(random())},
               .body = std::vector<std::byte>(bytes)};
  for (std::byte &each : made.body)
    each = static_cast<std::byte>(random() >> 8);
  return made;
}

// The adapter copies only the bytes of the run.
inline void copy_run(OutRing &out, InRing &in, const OutRing::Piece &piece) {
  const size_t at = size_t{piece.run.first} * out.slot_size();
  std::memcpy(in.memory().data() + at, out.memory().data() + at, piece.bytes);
}

struct Pair {
  OutRing out;
  InRing in;
  const Shape shape;
  std::deque<Message> expected;
  std::vector<OutRing::Piece> runs; // all so far

  Pair(const Shape &of, uint32_t group) : out(of, group), in(of), shape(of) {
    // So memory that nobody has written does not look like a message that has come.
    std::ranges::fill(in.memory(), std::byte{0xa5});
  }
  size_t whole_ring() const { return size_t{shape.slots} * shape.slot_size - Header::bytes; }

  // @param first so many bytes are put as the first part of two
  bool put(const Message &message, size_t first = 0) {
    if (!out.has_room(slots_for(message.body.size(), shape.slot_size)))
      return false;
    const std::span<const std::byte> body = message.body;
    out.put(message.header, first ? body.first(first) : body,
            first ? body.subspan(first) : std::span<const std::byte>());
    expected.push_back(message);
    return true;
  }

  // @return false if there was no run, or the sender may not send it yet
  bool deliver_one() {
    OutRing::Piece piece{};
    if (!out.next(piece))
      return false;
    runs.push_back(piece);
    copy_run(out, in, piece);
    in.came(piece.run);
    in.take(piece.run, piece.bytes, [this](const Header &header, std::span<const std::byte> body) {
      ASSERT_FALSE(expected.empty());
      const Message &next = expected.front();
      EXPECT_EQ(header.length, next.header.length);
      EXPECT_EQ(header.max_response, next.header.max_response);
      EXPECT_EQ(header.id, next.header.id);
      EXPECT_EQ(header.limit_ms, next.header.limit_ms);
      EXPECT_EQ(header.kind, next.header.kind);
      EXPECT_EQ(header.service, next.header.service);
      EXPECT_TRUE(std::ranges::equal(body, next.body));
      expected.pop_front();
    });
    // The ring must not look at a run again after it has taken it: a later run writes over it.
    const size_t at = size_t{piece.run.first} * shape.slot_size;
    std::ranges::fill(in.memory().subspan(at, piece.bytes), std::byte{0xa5});
    return true;
  }
  void deliver_all() {
    while (deliver_one())
      ;
    if (!out.is_empty()) { // so many runs are under way
      give_credit();
      deliver_all();
    }
  }
  void give_credit() { out.taken(in.next_credit()); }

  void expect_all_came() const { EXPECT_EQ(expected.size(), 0U); }
  void expect_all_slots_are_free() {
    give_credit();
    EXPECT_TRUE(out.has_room(shape.slots));
    EXPECT_FALSE(out.has_room(shape.slots + uint64_t{1}));
  }
};

// SPDX-License-Identifier: MIT
// Lesson 25's protocol: what goes onto the wire, and what is made of whatever comes from there.
#include "wire.hpp"

#include <rdmacommon/check.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

using namespace rdmashared;
using rdmacommon::Error, rdmacommon::SlotHeader;

namespace {

constexpr Shape shape{.slots = 64, .slot_size = 128, .window = 32, .largest = 0};
constexpr Shape shape_with_data{.slots = 64, .slot_size = 128, .window = 32, .largest = 4096};

Hello some_hello() {
  return {.purpose = Purpose::requests,
          .shape = shape,
          .answers_address = 0x1122334455667788,
          .data_address = 42,
          .token = 0xfedcba9876543210,
          .answers_rkey = 7,
          .data_rkey = 8};
}

TEST(SlotProtocol, HelloIsInNetworkByteOrderWithoutGaps) {
  const HelloBytes bytes = to_bytes(some_hello());
  const unsigned char begin[] = {'R', 'B', 'X', 'S', 0, 3, 0, 0, 0, 0, 0, 64, 0, 0, 0, 128};
  EXPECT_EQ(std::memcmp(bytes.bytes, begin, sizeof begin), 0);
  const unsigned char end[] = {0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10,
                               0,    0,    0,    7,    0,    0,    0,    8};
  EXPECT_EQ(std::memcmp(bytes.bytes + 40, end, sizeof end), 0);
}

TEST(SlotProtocol, HelloThereAndBack) {
  Refusal why{};
  const auto hello = hello_in(to_bytes(some_hello()).bytes, why);
  ASSERT_TRUE(hello);
  EXPECT_EQ(why, Refusal::none);
  EXPECT_EQ(hello->shape.window, 32U);
  EXPECT_EQ(hello->answers_address, 0x1122334455667788U);
  EXPECT_EQ(hello->data_rkey, 8U);
}

TEST(SlotProtocol, HelloOfAnotherVersionIsToldApart) {
  Refusal why{};
  EXPECT_FALSE(hello_in(to_bytes(some_hello(), 9).bytes, why));
  EXPECT_EQ(why, Refusal::version);
  EXPECT_FALSE(hello_in(std::span<const std::byte>(), why));
  EXPECT_EQ(why, Refusal::nonsense);
}

TEST(SlotProtocol, WelcomeThereAndBack) {
  const auto welcome = welcome_in(to_bytes(Welcome{.refusal = Refusal::full,
                                                   .window = 5,
                                                   .requests_address = 1ULL << 40,
                                                   .requests_rkey = 9,
                                                   .token = 11})
                                      .bytes);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->refusal, Refusal::full);
  EXPECT_EQ(welcome->requests_address, 1ULL << 40);
  EXPECT_EQ(welcome->token, 11U);
}

TEST(SlotProtocol, ShapesThatCannotBe) {
  EXPECT_TRUE(is_possible(shape));
  EXPECT_TRUE(is_possible({.slots = 1 << 24, .slot_size = 64, .window = 1, .largest = 0}));
  EXPECT_FALSE(is_possible({.slots = 0, .slot_size = 64, .window = 1, .largest = 0}));
  EXPECT_FALSE(is_possible({.slots = 1 << 25, .slot_size = 64, .window = 1, .largest = 0}));
  EXPECT_FALSE(is_possible({.slots = 64, .slot_size = 0, .window = 1, .largest = 0}));
  EXPECT_FALSE(is_possible({.slots = 64, .slot_size = 64, .window = 65, .largest = 0}));
  EXPECT_FALSE(is_possible({.slots = 64, .slot_size = 64, .window = 1, .largest = 1U << 31}));
}

// ---- whatever comes: an Error, or something that can be worked with

template <typename Bytes, typename Random> void mutate(Bytes &bytes, Random &random) {
  auto *raw = reinterpret_cast<unsigned char *>(&bytes);
  for (unsigned changes = random() % 4; changes > 0; --changes)
    raw[random() % sizeof bytes] = static_cast<unsigned char>(random());
}

TEST(SlotProtocolFuzz, Hello) {
  std::minstd_rand random(1);
  int accepted = 0;
  for (int i = 0; i < 300'000; ++i) {
    HelloBytes bytes = to_bytes(some_hello());
    mutate(bytes, random);
    Refusal why{};
    const size_t length = random() % 8 == 0 ? random() % (sizeof bytes + 1) : sizeof bytes;
    const auto hello = hello_in(std::span(bytes.bytes).first(length), why);
    EXPECT_EQ(hello.has_value(), why == Refusal::none);
    if (hello && hello->purpose == Purpose::requests) {
      EXPECT_TRUE(is_possible(hello->shape));
      EXPECT_LE(memory_for(hello->shape), uint64_t{1} << 52); // no overflow
      ++accepted;
    }
  }
  EXPECT_GT(accepted, 1000); // it is not only rejecting
}

TEST(SlotProtocolFuzz, Welcome) {
  std::minstd_rand random(2);
  for (int i = 0; i < 100'000; ++i) {
    WelcomeBytes bytes{};
    if (i % 2)
      bytes = to_bytes(Welcome{.refusal = Refusal::none,
                               .window = 3,
                               .requests_address = 1,
                               .requests_rkey = 2,
                               .token = 3});
    mutate(bytes, random);
    const size_t length = random() % 40 % (sizeof bytes + 1);
    const auto welcome = welcome_in(std::span(bytes.bytes).first(length));
    EXPECT_EQ(welcome.has_value(),
              length == sizeof bytes && i % 2 == 1 && bytes.bytes[0] == std::byte{'R'} &&
                  bytes.bytes[1] == std::byte{'B'} && bytes.bytes[2] == std::byte{'X'} &&
                  bytes.bytes[3] == std::byte{'S'});
    EXPECT_NE(words_for(welcome ? welcome->refusal : Refusal::none), nullptr);
  }
}

TEST(SlotProtocolFuzz, RequestsLieWithinTheirRun) {
  std::minstd_rand random(3);
  int accepted = 0;
  for (int i = 0; i < 500'000; ++i) {
    const uint32_t slot = random() % shape.slots, left = 1 + random() % (shape.slots - slot);
    SlotHeader wire =
        header_of({.kind = Kind::request, .slot = slot, .slots = 1, .length = 40, .id = slot});
    mutate(wire, random);
    try {
      const Message message = checked_request(wire, slot, left, shape);
      ++accepted;
      EXPECT_TRUE(message.kind == Kind::request || message.kind == Kind::post);
      EXPECT_GE(message.slots, 1U);
      EXPECT_LE(message.slots, left);
      EXPECT_LE(message.length + sizeof wire, uint64_t{message.slots} * shape.slot_size);
      EXPECT_EQ(message.id % shape.slots, slot);
    } catch (const Error &) {
    }
  }
  EXPECT_GT(accepted, 1000);
}

TEST(SlotProtocolFuzz, AnswersFitWhereTheyGo) {
  std::minstd_rand random(4);
  int accepted = 0;
  for (int i = 0; i < 500'000; ++i) {
    const Shape &its = i % 2 ? shape : shape_with_data;
    const Message asked{
        .kind = i % 3 ? Kind::request : Kind::post, .slot = 5, .slots = 2, .length = 10, .id = 69};
    Message right = asked;
    right.kind = asked.kind == Kind::post ? Kind::done : i % 2 ? Kind::response : Kind::data;
    right.length = right.kind == Kind::done ? 0 : 100;
    SlotHeader wire = header_of(right);
    mutate(wire, random);
    try {
      const Message message = checked_answer(wire, asked, its);
      ++accepted;
      EXPECT_EQ(message.id, asked.id);
      EXPECT_EQ(message.slots, asked.slots);
      EXPECT_EQ(message.kind == Kind::done, asked.kind == Kind::post);
      if (message.kind == Kind::data)
        EXPECT_LE(message.length, its.largest);
      else
        EXPECT_LE(message.length + sizeof wire, uint64_t{2} * its.slot_size);
    } catch (const Error &) {
    }
  }
  EXPECT_GT(accepted, 1000);
}

} // namespace

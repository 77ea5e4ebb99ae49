// SPDX-License-Identifier: MIT
// The protocol of the shared client: the bytes on the wire, and how a side reads the other's.
#include "wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

using namespace rdmashared; // for tests alone

namespace {

constexpr Shape shape{
    .slots = 64, .slot_size = 128, .window = 32, .long_responses = 3, .largest = 4096};

Hello some_hello() {
  return {.purpose = Purpose::requests,
          .shape = shape,
          .address = 0x1122334455667788,
          .token = 0xfedcba9876543210,
          .rkey = 0x0a0b0c0d};
}

Welcome some_welcome() {
  return {.rejection = Rejection::full,
          .window = 5,
          .address = 0x8877665544332211,
          .rkey = 0x01020304,
          .token = 0x1020304050607080};
}

std::vector<unsigned char> raw(std::span<const std::byte> bytes) {
  const auto *at = reinterpret_cast<const unsigned char *>(bytes.data());
  return {at, at + bytes.size()};
}

TEST(Wire, HelloIsInNetworkByteOrderWithoutGaps) {
  std::vector<unsigned char> expected = {'R',  'B',  'X',  'S',  0,    5,    0,    0,    0,    0,
                                         0,    64,   0,    0,    0,    128,  0,    0,    0,    32,
                                         0,    0,    0,    3,    0,    0,    16,   0,    0x11, 0x22,
                                         0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xfe, 0xdc, 0xba, 0x98,
                                         0x76, 0x54, 0x32, 0x10, 0x0a, 0x0b, 0x0c, 0x0d, 0,    5};
  expected.resize(sizeof(HelloBytes)); // zeros behind it
  EXPECT_EQ(raw(to_bytes(some_hello()).bytes), expected);
}

TEST(Wire, HelloThereAndBack) {
  for (const Purpose purpose : {Purpose::requests, Purpose::data}) {
    Hello hello = some_hello();
    hello.purpose = purpose;
    Rejection why = Rejection::nonsense;
    const auto came = hello_in(to_bytes(hello).bytes, why);
    ASSERT_TRUE(came);
    EXPECT_EQ(why, Rejection::none);
    EXPECT_EQ(came->purpose, purpose);
    EXPECT_EQ(came->shape, hello.shape);
    EXPECT_EQ(came->address, hello.address);
    EXPECT_EQ(came->token, hello.token);
    EXPECT_EQ(came->rkey, hello.rkey);
  }
}

TEST(Wire, BothSpeakTheNewestVersionThatBothKnow) {
  Rejection why{};
  Hello future = some_hello();
  future.version = newest_version + 2;
  const auto came = hello_in(to_bytes(future, newest_version).bytes, why);
  ASSERT_TRUE(came);
  EXPECT_EQ(came->version, newest_version);
  Welcome answer = some_welcome();
  EXPECT_EQ(welcome_in(to_bytes(answer).bytes)->rejection, Rejection::full);
  for (const uint16_t other : {oldest_version - 1, newest_version + 1}) {
    answer.version = other;
    EXPECT_EQ(welcome_in(to_bytes(answer).bytes)->rejection, Rejection::version);
  }
}

TEST(Wire, HelloMayBeFollowedByZeros) { // rdma_cm fills it up
  std::array<std::byte, 196> filled{};
  const HelloBytes bytes = to_bytes(some_hello());
  std::ranges::copy(bytes.bytes, filled.begin());
  Rejection why{};
  const auto came = hello_in(filled, why);
  ASSERT_TRUE(came);
  EXPECT_EQ(came->rkey, some_hello().rkey);
}

TEST(Wire, AHelloThatCannotBeIsRefusedWithItsReason) {
  Rejection why{};
  const HelloBytes good = to_bytes(some_hello());
  Hello old = some_hello();
  for (old.version = 0; old.version < oldest_version; ++old.version) {
    EXPECT_FALSE(hello_in(to_bytes(old, 0).bytes, why));
    EXPECT_EQ(why, Rejection::version);
  }
  Hello future = some_hello();
  future.version = 0xffff;
  EXPECT_FALSE(hello_in(to_bytes(future, newest_version + 1).bytes, why));
  EXPECT_EQ(why, Rejection::version);
  for (size_t length = 0; length < sizeof good; ++length) {
    EXPECT_FALSE(hello_in(std::span(good.bytes).first(length), why));
    EXPECT_EQ(why, Rejection::nonsense);
  }
  HelloBytes stranger = good;
  stranger.bytes[0] = std::byte{'Q'};
  EXPECT_FALSE(hello_in(stranger.bytes, why));
  EXPECT_EQ(why, Rejection::nonsense);
  HelloBytes purposeless = good;
  purposeless.bytes[7] = std::byte{2};
  EXPECT_FALSE(hello_in(purposeless.bytes, why));
  EXPECT_EQ(why, Rejection::nonsense);
  Hello impossible = some_hello();
  impossible.shape.slot_size = 33;
  EXPECT_FALSE(hello_in(to_bytes(impossible).bytes, why));
  EXPECT_EQ(why, Rejection::nonsense);
}

TEST(Wire, WelcomeIsInNetworkByteOrderWithoutGaps) {
  const std::vector<unsigned char> expected = {'R',  'B',  'X',  'S',  0,    5,    0,    2,
                                               0,    0,    0,    5,    1,    2,    3,    4,
                                               0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
                                               0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80};
  EXPECT_EQ(raw(to_bytes(some_welcome()).bytes), expected);
}

TEST(Wire, WelcomeThereAndBack) {
  const auto came = welcome_in(to_bytes(some_welcome()).bytes);
  ASSERT_TRUE(came);
  EXPECT_EQ(came->rejection, Rejection::full);
  EXPECT_EQ(came->window, some_welcome().window);
  EXPECT_EQ(came->address, some_welcome().address);
  EXPECT_EQ(came->rkey, some_welcome().rkey);
  EXPECT_EQ(came->token, some_welcome().token);
  const auto rejection = welcome_in(rejecting_welcome(Rejection::closing).bytes);
  ASSERT_TRUE(rejection);
  EXPECT_EQ(rejection->rejection, Rejection::closing);
}

TEST(Wire, AWelcomeThatCannotBe) {
  const WelcomeBytes good = to_bytes(some_welcome());
  for (size_t length = 0; length < sizeof good; ++length)
    EXPECT_FALSE(welcome_in(std::span(good.bytes).first(length)));
  WelcomeBytes stranger = good;
  stranger.bytes[3] = std::byte{'s'};
  EXPECT_FALSE(welcome_in(stranger.bytes));
  // Another version never accepts: its other numbers may mean something else.
  WelcomeBytes newer = to_bytes(
      Welcome{.rejection = Rejection::none, .window = 1, .address = 1, .rkey = 1, .token = 1});
  newer.bytes[5] = std::byte{newest_version + 1};
  const auto came = welcome_in(newer.bytes);
  ASSERT_TRUE(came);
  EXPECT_EQ(came->rejection, Rejection::version);
}

TEST(Wire, EachRefusalHasWordsOfItsOwn) {
  std::set<std::string> words;
  for (uint16_t i = 0; i <= static_cast<uint16_t>(Rejection::unable) + 1; ++i)
    words.insert(words_for(static_cast<Rejection>(i))); // the last is one that nobody knows
  EXPECT_EQ(words.size(), static_cast<size_t>(Rejection::unable) + 2);
}

TEST(Wire, HeaderAndResponseBufferAreInNetworkByteOrder) {
  std::array<std::byte, Header::bytes> header;
  header.fill(std::byte{0xff}); // nothing of what stood there goes onto the wire
  to_wire(header, Header{.length = 0x01020304,
                         .max_response = 0x05060708,
                         .id = 0x1112131415161718,
                         .limit_ms = 0x21222324,
                         .kind = Kind::cancel,
                         .service = 9});
  EXPECT_EQ(raw(header), (std::vector<unsigned char>{1,    2,    3,    4,    5,    6,    7,    8,
                                                     0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
                                                     0x21, 0x22, 0x23, 0x24, 4,    9,    0,    0}));
  const Header back = header_in(header);
  EXPECT_EQ(back.length, 0x01020304U);
  EXPECT_EQ(back.max_response, 0x05060708U);
  EXPECT_EQ(back.id, 0x1112131415161718U);
  EXPECT_EQ(back.limit_ms, 0x21222324U);
  EXPECT_EQ(back.kind, Kind::cancel);
  EXPECT_EQ(back.service, 9);

  std::array<std::byte, ResponseBuffer::bytes> buffer;
  to_wire(buffer,
          ResponseBuffer{.address = 0x1112131415161718, .rkey = 0x01020304, .length = 0x05060708});
  EXPECT_EQ(raw(buffer), (std::vector<unsigned char>{0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
                                                     1, 2, 3, 4, 5, 6, 7, 8}));
  const ResponseBuffer buffer_back = response_buffer_in(buffer);
  EXPECT_EQ(buffer_back.address, 0x1112131415161718U);
  EXPECT_EQ(buffer_back.rkey, 0x01020304U);
  EXPECT_EQ(buffer_back.length, 0x05060708U);
}

TEST(Wire, ShapesAtTheirLimits) {
  const auto with = [](auto change) {
    Shape changed = shape;
    change(changed);
    return is_possible(changed);
  };
  EXPECT_TRUE(is_possible(shape));
  EXPECT_TRUE(with([](Shape &its) { its.slots = 8; }));
  EXPECT_FALSE(with([](Shape &its) { its.slots = 7; }));
  EXPECT_TRUE(with([](Shape &its) { its.slots = max_slots; })); // 2 GiB
  EXPECT_FALSE(with([](Shape &its) { its.slots = max_slots, its.slot_size = 136; }));
  EXPECT_FALSE(with([](Shape &its) { its.slots = max_slots + 1, its.slot_size = 32; }));
  EXPECT_TRUE(with([](Shape &its) { its.slot_size = 32; }));
  for (const uint32_t size : {0U, 24U, 31U, 33U, 36U, (1U << 20) + 8, ~7U})
    EXPECT_FALSE(with([size](Shape &its) { its.slot_size = size; })) << size;
  EXPECT_TRUE(with([](Shape &its) { its.slot_size = 1 << 20; }));
  EXPECT_TRUE(with([](Shape &its) { its.window = 1 << 20; }));
  EXPECT_FALSE(with([](Shape &its) { its.window = (1 << 20) + 1; }));
  EXPECT_FALSE(with([](Shape &its) { its.window = 0; }));
  EXPECT_TRUE(with([](Shape &its) { its.long_responses = 1 << 16, its.largest = 1 << 26; }));
  EXPECT_FALSE(with([](Shape &its) { its.long_responses = (1 << 16) + 1; }));
  EXPECT_FALSE(with([](Shape &its) { its.largest = (1 << 26) + 1; }));
  EXPECT_FALSE(with([](Shape &its) { its.long_responses = 0; }));
  EXPECT_FALSE(with([](Shape &its) { its.largest = 0; }));
  EXPECT_TRUE(with([](Shape &its) { its.long_responses = its.largest = 0; }));
}

TEST(Wire, AMessageTakesAsManySlotsAsItNeeds) {
  EXPECT_EQ(slots_for(0, 32), 1U);
  EXPECT_EQ(slots_for(8, 32), 1U);
  EXPECT_EQ(slots_for(9, 32), 2U);
  EXPECT_EQ(slots_for(40, 64), 1U);
  EXPECT_EQ(slots_for(41, 64), 2U);
  EXPECT_EQ(slots_for(~uint32_t{0}, 32), (uint64_t{1} << 27) + 1); // no overflow
}

TEST(Wire, AnIdKeepsItsParts) {
  std::minstd_rand random(1);
  for (int i = 0; i < 1000; ++i) {
    const RequestId id{.worker = static_cast<uint16_t>(random()),
                       .generation = static_cast<uint16_t>(random()),
                       .slot = static_cast<uint32_t>(random()) * 3};
    const RequestId back = RequestId::unpacked(id.packed());
    EXPECT_EQ(back.worker, id.worker);
    EXPECT_EQ(back.generation, id.generation);
    EXPECT_EQ(back.slot, id.slot);
  }
  const RequestId id{.worker = 0xfffe, .generation = 0xfffd, .slot = 0xfffffffc};
  EXPECT_EQ(id.packed(), 0xfffefffdfffffffcU);
}

TEST(WireFuzz, AHelloIsRefusedOrPossible) {
  std::minstd_rand random(2);
  int accepted = 0, not_accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    HelloBytes bytes = to_bytes(some_hello());
    for (unsigned changes = random() % 4; changes > 0; --changes)
      bytes.bytes[random() % sizeof bytes] = static_cast<std::byte>(random());
    Rejection why{};
    const auto hello = hello_in(bytes.bytes, why);
    ASSERT_EQ(hello.has_value(), why == Rejection::none);
    ++(hello ? accepted : not_accepted);
    ASSERT_TRUE(!hello || hello->purpose == Purpose::data || is_possible(hello->shape));
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(not_accepted, 1000);
}

} // namespace

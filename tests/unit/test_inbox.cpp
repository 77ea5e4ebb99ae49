// SPDX-License-Identifier: MIT
// What lesson 22's server makes of slots in which anything may stand.
#include "inbox.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

using namespace rdmacommon;

namespace {

class Slots : public testing::Test {
protected:
  Slots() { settings.shape = {.slots = 8, .slot_size = 64}; }

  // A message in slot `slot`.
  template <typename Body> void put(uint32_t slot, SlotHeader header, const Body &body) {
    write_message(std::span(memory).subspan(size_t{slot} * 64), header, body);
  }
  void put_begin() { put(0, {.length = 16, .kind = Kind::begin, .flags = 0, .id = 0}, hello); }
  void put_data(uint32_t slot, uint32_t process, uint32_t number) {
    put(slot, {.length = 4, .kind = Kind::data, .flags = 0, .id = uint64_t{process} << 32 | number},
        good);
  }
  void begin() {
    put_begin();
    inbox.take({0, 1}, 32);
  }
  // What is said of a run, or nothing.
  std::string refusal(rdmacommon::Run run, uint32_t length) {
    try {
      inbox.take(run, length);
      return "";
    } catch (const Error &error) {
      return error.what();
    }
  }
  void expect_refused(rdmacommon::Run run, uint32_t length, const std::string &words) {
    EXPECT_NE(refusal(run, length).find(words), std::string::npos) << words;
  }

  const Begin hello{htonl(protocol_version), htonl(8), htonl(64), htonl(4)};
  const Checksum good{htonl(checksum({}))};
  std::vector<std::byte> memory = std::vector<std::byte>(8 * 64);
  Settings settings;
  Inbox inbox{memory, settings};
};

TEST_F(Slots, SeveralMessagesOfARun) {
  begin();
  EXPECT_TRUE(inbox.has_begun());
  put_data(1, 1, 0);
  put_data(2, 4, 0);
  put(3, {.length = 100, .kind = Kind::filler, .flags = 0, .id = 0}, std::array<char, 100>{});
  put_data(5, 1, 1);
  inbox.take({1, 5}, 4 * 64 + 20);
  put(6, {.length = 16, .kind = Kind::end, .flags = 0, .id = 0},
      EndMessage{htobe64(3), htobe64(12)});
  testing::internal::CaptureStdout();
  inbox.take({6, 1}, 32);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("3 messages of 4 processes, 12 bytes"),
            std::string::npos);
  EXPECT_TRUE(inbox.has_ended());
  put_data(7, 1, 2);
  expect_refused({7, 1}, 20, "out of order");
}

TEST_F(Slots, BytesThatAreNotTheRun) {
  begin();
  put_data(1, 1, 0);
  expect_refused({1, 1}, 0, "0 bytes are not 1 slots");
  expect_refused({1, 1}, 65, "65 bytes are not 1 slots");
  expect_refused({1, 2}, 64, "64 bytes are not 2 slots");
  expect_refused({1, 1}, 8, "ends within a header");
  expect_refused({1, 2}, 72, "ends within a header"); // after a good one
}

TEST_F(Slots, LengthsThatCannotBe) {
  begin();
  for (const uint32_t length : {49U, 1000U, 0xfffffff0U, 0xffffffffU}) {
    put(1, {.length = length, .kind = Kind::filler, .flags = 0, .id = 0}, good);
    expect_refused({1, 1}, 64, std::to_string(length) + " bytes go beyond the run");
  }
  put(1, {.length = 49, .kind = Kind::filler, .flags = 0, .id = 0}, good);
  EXPECT_EQ(refusal({1, 2}, 65), "");
  put(1, {.length = 2, .kind = Kind::data, .flags = 0, .id = uint64_t{1} << 32}, good);
  expect_refused({1, 1}, 18, "too short");
  put(1, {.length = 15, .kind = Kind::end, .flags = 0, .id = 0}, EndMessage{});
  expect_refused({1, 1}, 32, "its length is wrong for its kind");
  put(1, {.length = 17, .kind = Kind::end, .flags = 0, .id = 0}, EndMessage{});
  expect_refused({1, 1}, 33, "its length is wrong for its kind");
}

TEST_F(Slots, KindsAndOrder) {
  put_data(1, 1, 0);
  expect_refused({1, 1}, 20, "out of order");
  begin();
  expect_refused({0, 1}, 32, "out of order"); // twice
  expect_refused({7, 1}, 20, "no kind 0");    // nobody has written there
  put(1, {.length = 4, .kind = 9, .flags = 0, .id = 0}, good);
  expect_refused({1, 1}, 20, "no kind 9");
  put(1, {.length = 4, .kind = Kind::filler, .flags = 1, .id = 0}, good);
  expect_refused({1, 1}, 20, "flags");
  put(1, {.length = 16, .kind = Kind::end, .flags = 0, .id = 0}, EndMessage{htobe64(1), 0});
  expect_refused({1, 1}, 32, "what has come is not what it says was sent");
}

TEST_F(Slots, Begins) {
  for (const auto &[what, words] :
       {std::pair{Begin{htonl(2), htonl(8), htonl(64), htonl(4)}, "another version"},
        std::pair{Begin{htonl(1), htonl(16), htonl(64), htonl(4)}, "are not ours"},
        std::pair{Begin{htonl(1), htonl(8), htonl(128), htonl(4)}, "are not ours"},
        std::pair{Begin{htonl(1), htonl(8), htonl(64), htonl(5)}, "are not ours"},
        std::pair{Begin{1, 8, 64, 4}, "another version"}}) {
    put(0, {.length = 16, .kind = Kind::begin, .flags = 0, .id = 0}, what);
    expect_refused({0, 1}, 32, words);
  }
  EXPECT_FALSE(inbox.has_begun());
}

TEST_F(Slots, DataThatAreNotRight) {
  begin();
  put_data(1, 1, 1);
  expect_refused({1, 1}, 20, "one before it is lost, or it is doubled");
  put_data(1, 0, 0);
  expect_refused({1, 1}, 20, "no process 0");
  put_data(1, 5, 0);
  expect_refused({1, 1}, 20, "no process 5");
  put(1, {.length = 4, .kind = Kind::data, .flags = 0, .id = uint64_t{2} << 32}, Checksum{1});
  expect_refused({1, 1}, 20, "its checksum is wrong");
  put_data(1, 2, 0);
  inbox.take({1, 1}, 20);
  expect_refused({1, 1}, 20, "it is doubled");
}

// Whatever stands there: an Error, or nothing.
TEST_F(Slots, AnyBits) {
  begin();
  std::minstd_rand random(18);
  for (int round = 0; round < 100'000; ++round) {
    for (int i = 0; i < 4; ++i)
      memory[random() % memory.size()] = static_cast<std::byte>(random() % 3 == 0 ? random() : 0);
    const auto first = static_cast<uint32_t>(random() % 8),
               count = static_cast<uint32_t>(1 + random() % (8 - first));
    refusal({first, count}, static_cast<uint32_t>(random() % (count * 64 + 2)));
  }
}

} // namespace

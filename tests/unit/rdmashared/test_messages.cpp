// SPDX-License-Identifier: MIT
#include <rdmashared/messages.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rdmashared {
namespace {

struct Pair {
  uint32_t first, second;
};
struct Swap {
  static constexpr uint32_t type = 0x01020304;
  uint32_t first, second;
};
struct Fail {
  static constexpr uint32_t type = 2;
};

// Not a request: nothing says its number, or it has an address in it that means nothing elsewhere.
static_assert(Typed<Swap> && Typed<Fail> && Plain<Pair>);
struct Padded {
  uint32_t first;
  uint64_t second;
};
struct Pointing {
  const char *text;
};
struct Floating {
  double value;
  char name[8];
};
static_assert(Plain<Floating> && !Plain<Padded> && !Plain<Pointing>);
static_assert(!Typed<Pair> && !Plain<std::string> && !Plain<const char *>);

bool begins_with(const std::string &text, std::string_view words) {
  return text.starts_with(words);
}

TEST(FromBytes, TakesAllBytesAndNoOthers) {
  const Pair pair{.first = 1, .second = 2};
  std::vector<std::byte> bytes(sizeof pair + 1);
  std::memcpy(bytes.data() + 1, &pair, sizeof pair); // at an odd address
  const auto copy = from_bytes<Pair>(std::span(bytes).subspan(1));
  EXPECT_EQ(copy.first, 1);
  EXPECT_EQ(copy.second, 2);
  for (const size_t length : {0, 7, 9}) {
    std::string why;
    try {
      from_bytes<Pair>(std::span(bytes).first(length));
    } catch (const rdmacommon::Error &error) {
      why = error.what();
    }
    EXPECT_PRED2(begins_with, why,
                 "a message: it has " + std::to_string(length) + " bytes in place of 8");
  }
}

TEST(ToRequest, BeginsWithTheTypeInNetworkByteOrder) {
  const auto bytes = to_request(Swap{.first = 5, .second = 6});
  EXPECT_EQ(bytes.size(), 12);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(static_cast<int>(bytes[i]), i + 1);
  EXPECT_EQ(from_bytes<Swap>(std::span(bytes).subspan(4)).second, 6);
}

struct Old {
  static constexpr size_t oldest_size = 4;
  uint32_t first = 0;
};
struct New {
  static constexpr size_t oldest_size = 4;
  uint32_t first = 0;
  uint32_t second = 7; // the value that an old program means
};

TEST(FromBytes, OfAGrowingStructTakesThoseOfBothVersions) {
  const Old old{.first = 1};
  const auto as_new = from_bytes<New>(std::as_bytes(std::span(&old, 1)));
  EXPECT_EQ(as_new.first, 1);
  EXPECT_EQ(as_new.second, 7);
  const New next{.first = 2, .second = 3};
  EXPECT_EQ(from_bytes<Old>(std::as_bytes(std::span(&next, 1))).first, 2);
  EXPECT_THROW(from_bytes<New>(std::as_bytes(std::span(&next, 1)).first(3)), rdmacommon::Error);
}

struct AlsoFail {
  static constexpr uint32_t type = 2;
};

TEST(Dispatcher, HasOneHandlerForEachNumber) {
  Dispatcher dispatcher;
  dispatcher.on<Fail>([](const Fail &) { return Pair{}; }).on<Swap>([](const Swap &) {
    return Pair{};
  });
  EXPECT_THROW(dispatcher.on<AlsoFail>([](const AlsoFail &) { return Pair{}; }), rdmacommon::Error);
}

} // namespace
} // namespace rdmashared

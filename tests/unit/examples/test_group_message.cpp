// SPDX-License-Identifier: MIT
// Tests what 14_multicast believes of a datagram, and the addresses that it finds in front of it.
#include "group_message.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace {

TEST(GroupMessage, ComesBackAsItWas) {
  std::string_view text;
  const std::string bytes = encode("hello");
  ASSERT_EQ(decode(bytes, text), nullptr);
  EXPECT_EQ(text, "hello");
}

TEST(GroupMessage, EveryBrokenByteOfTheHeaderIsSeen) {
  for (size_t at = 0; at < sizeof(GroupHeader); ++at) {
    std::string bytes = encode("hello");
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    std::string_view text;
    EXPECT_NE(decode(bytes, text), nullptr) << at;
  }
}

TEST(GroupMessage, AnyOtherLengthIsRefused) {
  const std::string right = encode("hello");
  std::string_view text;
  for (size_t length = 0; length < right.size(); ++length) {
    const std::vector<char> bytes(right.begin(), right.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_NE(decode({bytes.data(), bytes.size()}, text), nullptr) << length;
  }
  EXPECT_NE(decode(right + "x", text), nullptr);
}

TEST(GroupMessage, AddressesAreInTheLast8BytesOfTheHeader) {
  std::array<char, 40> bytes{};
  const std::array<unsigned char, 8> both{10, 77, 0, 2, 239, 8, 8, 9};
  std::memcpy(bytes.data() + 32, both.data(), both.size());
  const Addresses addresses = addresses_of(bytes.data());
  for (const ibv_gid *gid : {&addresses.source, &addresses.destination}) {
    EXPECT_EQ(gid->raw[9], 0);
    EXPECT_EQ(gid->raw[10], 0xff);
    EXPECT_EQ(gid->raw[11], 0xff);
  }
  EXPECT_EQ(addresses.source.raw[12], 10);
  EXPECT_EQ(addresses.source.raw[15], 2);
  EXPECT_EQ(addresses.destination.raw[12], 239);
  EXPECT_EQ(addresses.destination.raw[15], 9);
}

} // namespace

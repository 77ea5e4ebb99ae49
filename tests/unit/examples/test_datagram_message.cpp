// SPDX-License-Identifier: MIT
// Tests what 08_datagrams believes of a datagram, and whom it takes for the sender.
#include "message.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace {

using Bytes = std::array<unsigned char, 40>;

void put(Bytes &bytes, size_t at, std::initializer_list<unsigned char> what) {
  std::copy(what.begin(), what.end(), bytes.begin() + static_cast<ptrdiff_t>(at));
}

// 10.77.0.2 -> 10.77.0.1, with a checksum that is right.
Bytes ipv4() {
  Bytes bytes{};
  put(bytes, 20, {0x45, 0, 0, 84, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1});
  uint32_t sum = 0;
  for (size_t at = 20; at < 40; at += 2)
    sum += static_cast<uint32_t>(bytes[at] << 8 | bytes[at + 1]);
  sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
  put(bytes, 30, {static_cast<unsigned char>(sum >> 8), static_cast<unsigned char>(sum)});
  return bytes;
}

Bytes ipv6() {
  Bytes bytes{};
  put(bytes, 0, {0x60, 0, 0, 0, 0, 64, 17, 64});
  put(bytes, 8, {0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 2});
  put(bytes, 24, {0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  return bytes;
}

TEST(Grh, Ipv4IsInTheLast20Bytes) {
  const ReceivedHeader header = read_grh(ipv4().data());
  EXPECT_EQ(header.version, 4);
  EXPECT_EQ(header.payload, 64);
  EXPECT_EQ(header.hop_limit, 64);
  EXPECT_EQ(header.source.raw[10], 0xff);
  EXPECT_EQ(header.source.raw[15], 2);
  EXPECT_EQ(header.destination.raw[15], 1);
}

TEST(Grh, Ipv4BehindBytesThatLookLikeIpv6) {
  Bytes bytes = ipv4();
  bytes[0] = 0x60;
  EXPECT_EQ(read_grh(bytes.data()).version, 4);
}

TEST(Grh, Ipv4WithoutChecksumAsRxeHasIt) {
  Bytes bytes = ipv4();
  put(bytes, 30, {0, 0});
  EXPECT_EQ(read_grh(bytes.data()).version, 4);
}

TEST(Grh, Ipv6WhoseSourceLooksLikeIpv4) {
  const ReceivedHeader header = read_grh(ipv6().data());
  EXPECT_EQ(header.version, 6);
  EXPECT_EQ(header.payload, 64);
  EXPECT_EQ(header.source.raw[0], 0xfd);
  EXPECT_EQ(header.source.raw[15], 2);
  EXPECT_EQ(header.destination.raw[15], 1);
}

TEST(Message, ComesBackAsItWas) {
  const std::string bytes = encode({.kind = Kind::data, .sequence = 0x01020304, .text = "text"});
  Message message{};
  ASSERT_EQ(decode(bytes, message), nullptr);
  EXPECT_EQ(message.kind, Kind::data);
  EXPECT_EQ(message.sequence, 0x01020304u);
  EXPECT_EQ(message.text, "text");
}

TEST(Message, EveryBrokenByteOfTheHeaderIsSeen) {
  const std::string right = encode({.kind = Kind::data, .sequence = 1, .text = "text"});
  for (size_t at = 0; at < 8; ++at) { // the sequence number behind them can be any
    std::string bytes = right;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    Message message{};
    EXPECT_NE(decode(bytes, message), nullptr) << at;
  }
}

TEST(Message, AnyOtherLengthIsRefused) {
  const std::string right = encode({.kind = Kind::data, .sequence = 1, .text = "text"});
  Message message{};
  for (size_t length = 0; length < right.size(); ++length) {
    const std::vector<char> bytes(right.begin(), right.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_NE(decode({bytes.data(), bytes.size()}, message), nullptr) << length;
  }
  EXPECT_NE(decode(right + "x", message), nullptr);
}

} // namespace

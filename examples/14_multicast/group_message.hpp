// SPDX-License-Identifier: MIT
// 14_multicast: the message to a group, and the addresses in front of a received one.
#pragma once

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// In front of each text, in network byte order.
struct GroupHeader {
  static constexpr uint32_t expected_magic = 0x5262454d; // "RbEM"
  static constexpr uint16_t expected_version = 1;

  uint32_t magic;
  uint16_t version;
  uint16_t length; // bytes of the text that follows
};
static_assert(sizeof(GroupHeader) == 8);

inline std::string encode(std::string_view text) {
  const GroupHeader header{.magic = htonl(GroupHeader::expected_magic),
                           .version = htons(GroupHeader::expected_version),
                           .length = htons(static_cast<uint16_t>(text.size()))};
  return std::string(reinterpret_cast<const char *>(&header), sizeof header).append(text);
}

// Fills in `text`, which points into `bytes`, and returns nullptr; or says what is wrong. Any
// program can send to a group, so this checks everything.
inline const char *decode(std::string_view bytes, std::string_view &text) {
  GroupHeader header;
  if (bytes.size() < sizeof header)
    return "shorter than the header";
  std::memcpy(&header, bytes.data(), sizeof header); // the buffer need not be aligned
  if (ntohl(header.magic) != GroupHeader::expected_magic)
    return "not of this example";
  if (ntohs(header.version) != GroupHeader::expected_version)
    return "of another version";
  text = bytes.substr(sizeof header);
  return ntohs(header.length) == text.size() ? nullptr : "its length is not what has arrived";
}

// [addresses]
// The addresses of a datagram over IPv4, as GIDs. They are in the last 20 of 40 bytes (lesson 08).
struct Addresses {
  ibv_gid source, destination;
};

inline Addresses addresses_of(const char *forty_bytes) {
  Addresses result{};
  for (ibv_gid *gid : {&result.source, &result.destination})
    gid->raw[10] = gid->raw[11] = 0xff; // a.b.c.d as a GID is ::ffff:a.b.c.d
  std::memcpy(result.source.raw + 12, forty_bytes + 32, 4);
  std::memcpy(result.destination.raw + 12, forty_bytes + 36, 4);
  return result;
}
// [addresses]

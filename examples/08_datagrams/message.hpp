// SPDX-License-Identifier: MIT
// The contents of a received datagram: 40 bytes that the NIC puts there, then a message of this
// example's own.
#pragma once

#include <rdmacommon/device.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

enum class Kind : uint8_t { data = 1, acknowledgement = 2 };

struct Message {
  Kind kind;
  uint32_t sequence;
  std::string_view text; // empty in an acknowledgement
};

// In front of each message, in network byte order.
struct Header {
  static constexpr uint32_t expected_magic = 0x52624538; // "RbE8"
  static constexpr uint8_t expected_version = 1;

  uint32_t magic;
  uint8_t version, kind;
  uint16_t length; // bytes of the text that follows
  uint32_t sequence;
};
static_assert(sizeof(Header) == 12);

inline std::string encode(const Message &message) {
  const Header header{.magic = htonl(Header::expected_magic),
                      .version = Header::expected_version,
                      .kind = static_cast<uint8_t>(message.kind),
                      .length = htons(static_cast<uint16_t>(message.text.size())),
                      .sequence = htonl(message.sequence)};
  std::string bytes(reinterpret_cast<const char *>(&header), sizeof header);
  return bytes.append(message.text);
}

// Fills in `message` and returns nullptr, or says what is wrong. Any program that knows QP number
// and Q_Key can send here, so this checks everything in `bytes`; `message.text` points into them.
inline const char *decode(std::string_view bytes, Message &message) {
  Header header;
  if (bytes.size() < sizeof header)
    return "shorter than the header";
  std::memcpy(&header, bytes.data(), sizeof header); // the buffer need not be aligned
  if (ntohl(header.magic) != Header::expected_magic)
    return "not of this example";
  if (header.version != Header::expected_version)
    return "of another version";
  const std::string_view text = bytes.substr(sizeof header);
  if (ntohs(header.length) != text.size())
    return "its length is not what has arrived";
  const Kind kind{header.kind};
  if (kind != Kind::data && (kind != Kind::acknowledgement || !text.empty()))
    return "of an unknown kind";
  message = {.kind = kind, .sequence = ntohl(header.sequence), .text = text};
  return nullptr;
}

// The 40 bytes in front of a received datagram. Over IPv6 (and InfiniBand) they are that header,
// and over IPv4 its header is in the last 20 of them.
struct ReceivedHeader {
  int version; // 4 or 6: which header it is
  int payload; // bytes behind that header
  int hop_limit;
  ibv_gid source, destination;
};

inline ReceivedHeader read_grh(const void *forty_bytes) {
  unsigned char bytes[sizeof(ibv_grh)];
  std::memcpy(bytes, forty_bytes, sizeof bytes);
  const auto number = [&bytes](size_t at) { return bytes[at] << 8 | bytes[at + 1]; };
  // Nothing says which of the two it is. Where it is not clear from the version in front, an IPv4
  // header is known by its checksum: its words add up.
  uint32_t sum = 0;
  for (size_t at = 20; at < 40; at += 2)
    sum += static_cast<uint32_t>(number(at));
  const bool adds_up = bytes[20] == 0x45 && (sum & 0xffff) + (sum >> 16) == 0xffff;
  ReceivedHeader result{};
  if (bytes[0] >> 4 != 6 || adds_up) {
    result = {.version = 4, .payload = number(22) - 20, .hop_limit = bytes[28]};
    for (ibv_gid *gid : {&result.source, &result.destination})
      gid->raw[10] = gid->raw[11] = 0xff; // a.b.c.d as a GID is ::ffff:a.b.c.d
    std::memcpy(result.source.raw + 12, bytes + 32, 4);
    std::memcpy(result.destination.raw + 12, bytes + 36, 4);
  } else {
    result = {.version = 6, .payload = number(4), .hop_limit = bytes[7]};
    std::memcpy(result.source.raw, bytes + 8, 16);
    std::memcpy(result.destination.raw, bytes + 24, 16);
  }
  return result;
}

// The source of a datagram: a QP, on a port with this GID, or, where it has no GRH, with this
// LID.
struct Source {
  ibv_gid gid;
  uint16_t lid;
  uint32_t qpn;

  bool operator==(const Source &other) const {
    return std::memcmp(&gid, &other.gid, sizeof gid) == 0 && lid == other.lid && qpn == other.qpn;
  }
};

// A received datagram: the 40 bytes, and the message behind them if it is one. Within an InfiniBand
// subnet there is no GRH, and then the 40 bytes hold anything: the LID is in the completion.
struct Arrived {
  // [arrived]
  Arrived(const char *slot, const ibv_wc &completion)
      : has_grh((completion.wc_flags & IBV_WC_GRH) != 0) {
    source.qpn = completion.src_qp;
    if (has_grh) {
      header = read_grh(slot);
      source.gid = header.source;
    } else {
      source.lid = completion.slid;
    }
    problem = decode({slot + sizeof(ibv_grh), completion.byte_len - sizeof(ibv_grh)}, message);
  }
  // [arrived]
  bool has_grh;
  ReceivedHeader header{}; // zeros without a GRH
  Source source{};
  Message message{};
  const char *problem;
};

inline std::string origin(const Arrived &arrived) {
  using rdmacommon::to_text;
  if (!arrived.has_grh)
    return "no GRH, from LID " + std::to_string(arrived.source.lid);
  return "40 of them GRH: IPv" + std::to_string(arrived.header.version) + ", " +
         to_text(arrived.header.source) + " -> " + to_text(arrived.header.destination);
}

inline void print_refused(const ibv_wc &completion, const char *why) {
  static int lines = 0; // a flood of rubbish is not to become a flood of output
  if (++lines <= 10)
    std::printf("refused a datagram of %zu bytes from QP 0x%06x: %s\n",
                completion.byte_len - sizeof(ibv_grh), completion.src_qp, why);
}

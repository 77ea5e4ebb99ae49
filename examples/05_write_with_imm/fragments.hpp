// SPDX-License-Identifier: MIT
// The agreement between the two sides of 05_write_with_imm.
#pragma once

#include <rdmacommon/exchange.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

constexpr size_t fragment_size = 4096;
constexpr uint32_t slot_count = 16;
constexpr uint64_t longest = 1ULL << 30; // 2^18 fragments, whose numbers fit into 24 bits

// Written when all fragments are under way. In network byte order.
struct Summary {
  uint64_t version, bytes, checksum;
};

// Both sides have one of these. Fragment n goes from slot n % 16 here to slot n % 16 there.
struct FragmentMemory {
  std::array<std::array<char, fragment_size>, slot_count> slots;
  Summary summary;
};

// [immediate]
// The immediate data of one message name consecutive fragments: the number of the first one (24
// bits), and the number of fragments (8 bits). A count of 0 ends the file.
struct Run {
  uint32_t first, count;
};

inline uint32_t to_immediate(Run run) {
  return htonl(run.first << 8 | run.count);
}

inline Run from_immediate(uint32_t imm_data) {
  const uint32_t bits = ntohl(imm_data);
  return {.first = bits >> 8, .count = bits & 0xff};
}
// [immediate]

// FNV-1a: finds mistakes, not attackers.
class Checksum {
public:
  void add(const char *data, size_t length) {
    for (const char *end = data + length; data != end; ++data)
      value_ = (value_ ^ static_cast<unsigned char>(*data)) * 0x100000001b3;
  }
  uint64_t value() const { return value_; }

private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// The objects that sender and receiver both work with.
struct Side {
  ibv_qp *qp;
  ibv_cq *send_cq, *recv_cq;
  ibv_mr *mr;
  FragmentMemory &memory;
  rdmacommon::RemoteMemory theirs;
  std::chrono::seconds timeout;
};

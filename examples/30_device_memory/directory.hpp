// SPDX-License-Identifier: MIT
// The layout of the memory on the server's chip, and the message that tells a client about it.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <string>

// [layout]
constexpr size_t directory_begin = 0; // the message below: the server SENDs it from here
constexpr size_t text_begin = 64, text_size = 32;       // the server copies a text in, and
constexpr size_t answer_begin = text_begin + text_size; // a client WRITEs one behind it
constexpr size_t locks_begin = 128;                     // from here to the end: locks
constexpr size_t lock_size = 8; // 0: free, else the number of the process that has it

constexpr size_t lock_at(size_t lock) {
  return locks_begin + lock * lock_size;
}
// [layout]

// In network byte order.
struct Directory {
  uint32_t version;  // 1
  uint32_t you;      // this client's number, counted from 1
  uint32_t locks;    // number of locks on the chip
  uint32_t counters; // number of counters in ordinary memory; counter i is protected by lock i
  uint64_t counters_address; // address of the first; each has eight bytes, in network byte order
  uint32_t counters_rkey;
  uint32_t reserved; // 0
};
static_assert(sizeof(Directory) == 32);

struct Known {
  uint32_t me, counters;
  rdmacommon::RemoteMemory chip, memory; // the locks are in the one, the counters in the other
};

// Checks what a server has said: with a wrong number in it, our own requests would break the
// connection.
inline Known from_directory(const Directory &said, size_t length,
                            const rdmacommon::RemoteMemory &chip) {
  const auto require = [](bool so, const char *what) {
    if (!so)
      throw rdmacommon::Error("the server's directory", what);
  };
  require(length == sizeof said, "it has not the size of one");
  require(be32toh(said.version) == 1, "it is of another version");
  require(said.you != 0, "it does not say which process this is");
  require(chip.address == 0, "the memory that it is about does not begin at offset 0");
  require(chip.length >= lock_at(be32toh(said.locks)), "not all of its locks are there");
  require(said.counters != 0, "it has no counters");
  require(be32toh(said.counters) <= be32toh(said.locks), "it has fewer locks than counters");
  const uint64_t address = be64toh(said.counters_address),
                 size = uint64_t{be32toh(said.counters)} * sizeof(uint64_t);
  require(address % sizeof(uint64_t) == 0, "its counters are not where words are");
  require(address + size >= address, "its counters end past the last address that there is");
  return {.me = be32toh(said.you),
          .counters = be32toh(said.counters),
          .chip = chip,
          .memory = {.address = address, .rkey = be32toh(said.counters_rkey), .length = size}};
}

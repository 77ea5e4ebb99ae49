// SPDX-License-Identifier: MIT
// 10_memory_windows: what the server tells the client of a window, and the cases that both go
// through.
#pragma once

#include <rdmacommon/check.hpp>

#include <infiniband/verbs.h>

#include <endian.h>

#include <array>
#include <cstddef>
#include <cstdint>

constexpr size_t region_size = 4096; // the server's memory,
constexpr size_t window_at = 1024;   // and the part of it that a window opens
constexpr size_t window_size = 1024;
constexpr size_t probe_size = 64; // bytes that the client reads or writes

constexpr unsigned read_only = IBV_ACCESS_REMOTE_READ;
constexpr unsigned read_write = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

// Network byte order. The server SENDs it right behind the bind.
struct Grant {
  uint32_t version = htobe32(1);
  uint32_t rkey;
  uint64_t address, length;
  uint32_t rights; // bit 0: READ, bit 1: WRITE
  uint32_t reserved = 0;
};
static_assert(sizeof(Grant) == 32);

// The same for use, once it is checked.
struct Window {
  uint32_t rkey;
  uint64_t address, length;
  unsigned access;
};

inline Grant to_grant(const Window &window) {
  const unsigned rights = ((window.access & IBV_ACCESS_REMOTE_READ) ? 1U : 0U) |
                          ((window.access & IBV_ACCESS_REMOTE_WRITE) ? 2U : 0U);
  return {.rkey = htobe32(window.rkey),
          .address = htobe64(window.address),
          .length = htobe64(window.length),
          .rights = htobe32(rights)};
}

// `bytes` is how many have come.
inline Window from_grant(const Grant &grant, size_t bytes) {
  const auto check = [](bool right, const char *what) {
    if (!right)
      throw rdmacommon::Error("the server's grant", what);
  };
  check(bytes == sizeof grant, "it has not the size of one");
  check(be32toh(grant.version) == 1, "it is of another version");
  const uint32_t rights = be32toh(grant.rights);
  const Window window{.rkey = be32toh(grant.rkey),
                      .address = be64toh(grant.address),
                      .length = be64toh(grant.length),
                      .access = (rights & 2U) ? read_write : read_only};
  check(rights == 1 || rights == 3, "its rights are not READ, or READ and WRITE");
  check(window.length >= probe_size, "its window is too small");
  // With some room on both sides, since the client means to try there.
  const uint64_t last = UINT64_MAX - region_size;
  check(window.address >= probe_size && window.address <= last &&
            window.length <= last - window.address,
        "its window ends past the last address that there is");
  return window;
}

enum class WindowEnd { kept, given_back, taken_back };

struct Case {
  const char *name;
  ibv_mw_type type;
  bool bound_on_other; // on another queue pair of the server's than that of this client
  unsigned access;     // rights that the window grants
  WindowEnd end;       // state of the window when the client probes it
  ibv_wr_opcode probe; // the client's request
  int64_t at;          // its address, counted from where the window begins
  const char *in_words;
};

constexpr std::array<Case, 9> cases{{
    {"inside", IBV_MW_TYPE_2, false, read_write, WindowEnd::kept, IBV_WR_RDMA_READ, 0,
     "READ inside"},
    {"rights", IBV_MW_TYPE_2, false, read_only, WindowEnd::kept, IBV_WR_RDMA_WRITE, 0,
     "WRITE, granted READ"},
    {"beyond", IBV_MW_TYPE_2, false, read_write, WindowEnd::kept, IBV_WR_RDMA_READ, region_size,
     "READ behind the region"},
    {"before", IBV_MW_TYPE_2, false, read_write, WindowEnd::kept, IBV_WR_RDMA_READ,
     -static_cast<int64_t>(probe_size), "READ before the window"},
    {"given-back", IBV_MW_TYPE_2, false, read_write, WindowEnd::given_back, IBV_WR_RDMA_READ, 0,
     "READ, after SEND_WITH_INV"},
    {"taken-back", IBV_MW_TYPE_2, false, read_write, WindowEnd::taken_back, IBV_WR_RDMA_READ, 0,
     "READ, after LOCAL_INV"},
    {"other-peer", IBV_MW_TYPE_2, true, read_write, WindowEnd::kept, IBV_WR_RDMA_READ, 0,
     "READ by another's key"},
    {"type-1", IBV_MW_TYPE_1, true, read_write, WindowEnd::kept, IBV_WR_RDMA_READ, 0,
     "READ by another's key"},
    {"unbound", IBV_MW_TYPE_1, false, read_write, WindowEnd::taken_back, IBV_WR_RDMA_READ, 0,
     "READ, after a bind of 0 B"},
}};

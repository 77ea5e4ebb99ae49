// SPDX-License-Identifier: MIT
// For run_messages.cpp: what lessons 08, 14 and 30 make of the bytes that a peer has sent.
// Their headers have a namespace each, because they use the same names.
#include "fuzz.hpp"

// All that they include, before they are in a namespace.
#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/immediate.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace datagrams {
#include "message.hpp"

void datagram(std::span<const uint8_t> bytes) {
  std::vector<char> slot(bytes.begin(), bytes.end());
  if (slot.size() <= sizeof(ibv_grh))
    slot.resize(sizeof(ibv_grh) + 1); // the NIC writes the 40 bytes, whatever a peer sends
  ibv_wc completion{};
  completion.byte_len = static_cast<uint32_t>(slot.size());
  completion.wc_flags = (slot.back() & 1) != 0 ? IBV_WC_GRH : 0;
  const Arrived arrived(slot.data(), completion);
  if (arrived.problem == nullptr)
    require(encode(arrived.message) ==
                std::string(slot.data() + sizeof(ibv_grh), slot.size() - sizeof(ibv_grh)),
            "a message can be written back");
  require(!origin(arrived).empty(), "an origin has words");
}
} // namespace datagrams

namespace multicast {
#include "group_message.hpp"

void group_datagram(std::span<const uint8_t> bytes) {
  std::vector<char> slot(bytes.begin(), bytes.end());
  if (slot.size() < sizeof(ibv_grh))
    slot.resize(sizeof(ibv_grh));
  addresses_of(slot.data());
  const std::string_view behind(slot.data() + sizeof(ibv_grh), slot.size() - sizeof(ibv_grh));
  std::string_view text;
  if (decode(behind, text) == nullptr)
    require(encode(text) == behind, "a message can be written back");
}
} // namespace multicast

namespace device_memory {
#include "directory.hpp"

void directory(std::span<const uint8_t> bytes) {
  Input input(bytes.data(), bytes.size());
  const auto length = input.get<uint8_t>() < 8 ? size_t{input.get<uint8_t>()} : sizeof(Directory);
  const rdmacommon::RemoteMemory chip{.address =
                                          input.get<uint8_t>() < 8 ? input.get<uint64_t>() : 0,
                                      .rkey = 1,
                                      .length = input.get<uint64_t>()};
  const Known known = from_directory(input.get<Directory>(), length, chip);
  // The client locks any of these counters, and changes it.
  require(known.counters > 0 && known.me > 0, "there is a counter");
  require(lock_at(known.counters - 1) + lock_size <= chip.length, "each counter has a lock");
  require(known.memory.length / sizeof(uint64_t) == known.counters &&
              known.memory.address + known.memory.length >= known.memory.address,
          "the counters are in the memory");
}
} // namespace device_memory

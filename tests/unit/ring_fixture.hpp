// SPDX-License-Identifier: MIT
// A small ring, mapped twice: as the consumer has it, and as a worker has it.
#pragma once

#include <rdmacommon/slot_ring.hpp>

#include <gtest/gtest.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rdmacommon; // for tests alone
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

struct Ring : testing::Test {
  static constexpr RingShape small{.slots = 16, .slot_size = 64};
  File memory = SlotRing::make(small);
  File doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  // What lies in the memory, to be changed as a liar would, or somebody who dies half-way.
  SharedMemory raw{memory.get(), static_cast<size_t>(lseek(memory.get(), 0, SEEK_END))};
  RingHeader &header = *static_cast<RingHeader *>(raw.data());
  SlotControl *controls = reinterpret_cast<SlotControl *>(static_cast<std::byte *>(raw.data()) +
                                                          header.layout.controls);
  SlotRing ring{memory.get(), doorbell.get()}; // the consumer's
  SlotRing far{memory.get(), doorbell.get()};  // at another address

  static void put(SlotRing &to, uint32_t worker, std::string_view text) {
    auto claim = to.try_claim(worker, static_cast<uint32_t>(text.size()));
    ASSERT_TRUE(claim);
    std::memcpy(claim->data().data(), text.data(), text.size());
    ASSERT_TRUE(claim->publish());
  }
  std::vector<std::string> read(const SlotRun &run) {
    std::vector<std::string> texts;
    for (uint32_t at = 0; at < run.count;) {
      const SlotMessage message = ring.message(run, at);
      texts.emplace_back(reinterpret_cast<const char *>(message.data.data()), message.data.size());
    }
    return texts;
  }
  std::vector<std::string> all() {
    std::vector<std::string> texts;
    for (SlotRun run; (run = ring.take()).count > 0; ring.give_back(run))
      for (std::string &text : read(run))
        texts.push_back(std::move(text));
    return texts;
  }
  bool has_rung() {
    uint64_t count;
    return ::read(doorbell.get(), &count, sizeof count) == sizeof count;
  }
  using Texts = std::vector<std::string>;
};

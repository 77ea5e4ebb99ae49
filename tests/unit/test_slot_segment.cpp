// SPDX-License-Identifier: MIT
// A slot ring's memory: its sizes, and what it must not say.
#include "ring_fixture.hpp"

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

namespace {

TEST_F(Ring, ADamagedSlotIsSaid) {
  controls[0].word =
      SlotWord{.state = SlotState::ready, .count = 17, .worker = 1, .lap = 0}.packed();
  EXPECT_THROW(ring.take(), Error);
  controls[0].word =
      SlotWord{.state = SlotState::ready, .count = 0, .worker = 1, .lap = 0}.packed();
  EXPECT_THROW(ring.take(), Error);
  EXPECT_THROW(ring.reclaim(1), Error);
  controls[0].word =
      SlotWord{.state = SlotState::ready, .count = 2, .worker = 1, .lap = 0}.packed();
  controls[0].length = 129;
  const SlotRun run = ring.take();
  uint32_t at = 0;
  EXPECT_THROW(ring.message(run, at), Error);
}

TEST_F(Ring, WhatAWorkerChangesInAMessageThatHasBeenTakenIsNotSeen) {
  put(far, 1, std::string(64 * 3, 'a'));
  put(far, 2, "b");
  const SlotRun run = ring.take();
  ASSERT_EQ(run.count, 4u);
  // Three messages where there was one, from somebody else, and longer than their slots.
  for (int slot = 0; slot < 4; ++slot) {
    controls[slot].word =
        SlotWord{.state = SlotState::ready, .count = 1, .worker = 7, .lap = 0}.packed();
    controls[slot].length = 0xffffffff;
  }
  uint32_t at = 0;
  const SlotMessage first = ring.message(run, at);
  EXPECT_EQ(at, 3u);
  EXPECT_EQ(first.slots, 3u);
  EXPECT_EQ(first.worker, 1u);
  EXPECT_EQ(first.data.size(), 64u * 3);
  const SlotMessage second = ring.message(run, at);
  EXPECT_EQ(at, 4u);
  EXPECT_EQ(second.worker, 2u);
  EXPECT_EQ(second.data.size(), 1u);
}

TEST_F(Ring, WhatIsNoRingIsRefused) {
  const File other = make_shared_memory("other", 4096), tiny = make_shared_memory("tiny", 8);
  EXPECT_THROW(SlotRing(other.get(), doorbell.get()), Error);
  EXPECT_THROW(SlotRing(tiny.get(), doorbell.get()), Error);
  EXPECT_THROW(SlotRing::make({.slots = 3}), Error);
  EXPECT_THROW(SlotRing::make({.slots = 0}), Error);
  EXPECT_THROW(SlotRing::make({.slots = 1 << 25}), Error);
  EXPECT_THROW(SlotRing::make({.slots = 4, .slot_size = 65}), Error);
  EXPECT_THROW(SlotRing::make({.slots = 4, .slot_size = 0}), Error);
  RingLayout &layout = header.layout;
  const RingLayout right = layout;
  const auto refused = [&](auto change) {
    change();
    EXPECT_THROW(SlotRing(memory.get(), doorbell.get()), Error);
    layout = right;
  };
  refused([&] { layout.magic[0] = 'S'; });
  refused([&] { layout.version = 2; });
  refused([&] { layout.size = 64; });
  refused([&] { layout.shape.slots = 1024; });
  refused([&] { layout.shape.slots = 0; });
  refused([&] { layout.shape.slot_size = 4096; });
  refused([&] { layout.controls = 0; });
  refused([&] { layout.data = uint64_t{1} << 40; });
  refused([&] { layout.length = 0; });
  refused([&] { layout.appendix = 0; });
  refused([&] { layout.shape.appendix = 1; });
  EXPECT_NO_THROW(SlotRing(memory.get(), doorbell.get()));
}

// The line of /proc/self/smaps that says how the kernel treats the mapping of an address.
std::string flags_of_mapping(const void *address) {
  std::ifstream smaps("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      is_it = begin <= reinterpret_cast<uintptr_t>(address) &&
              reinterpret_cast<uintptr_t>(address) < end;
    else if (is_it && line.starts_with("VmFlags:"))
      return line + ' ';
  }
  return "";
}

TEST_F(Ring, IsNeitherInheritedNorDumped) {
  const std::string flags = flags_of_mapping(ring.data().data());
  EXPECT_NE(flags.find(" dc "), std::string::npos) << flags; // MADV_DONTFORK
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags; // MADV_DONTDUMP
}

TEST_F(Ring, SixteenMillionSlots) {
  const File large = SlotRing::make(
      {.slots = SlotRing::max_slots, .slot_size = 64}); // only what is touched is there
  SlotRing one(large.get(), doorbell.get());
  put(one, 1, "a");
  EXPECT_EQ(one.take().count, 1u);
}

TEST_F(Ring, TheAppendixIsItsUsersOwn) {
  EXPECT_TRUE(ring.appendix().empty());
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{10'000}, uint64_t{16} << 30}) {
    const File file = SlotRing::make({.slots = 2, .slot_size = 64, .appendix = bytes});
    SlotRing one(file.get(), doorbell.get()), other(file.get(), doorbell.get());
    ASSERT_EQ(one.appendix().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(one.appendix().data()) % 4096, 0u);
    EXPECT_GE(one.appendix().data(), one.data().data() + one.data().size());
    EXPECT_EQ(one.appendix().back(), std::byte{0});
    put(one, 1, std::string(128, 'x')); // up to the data's end
    EXPECT_EQ(other.appendix().front(), std::byte{0});
    one.appendix().back() = std::byte{7};
    EXPECT_EQ(other.appendix().back(), std::byte{7});
    EXPECT_EQ(other.take().count, 2u);
  }
  EXPECT_THROW(SlotRing::make({.slots = 2, .slot_size = 64, .appendix = (uint64_t{16} << 30) + 1}),
               Error);
  EXPECT_THROW(SlotRing::make({.slots = 2, .slot_size = 64, .appendix = ~uint64_t{0}}), Error);
}

TEST_F(Ring, TheLargestOneThatThereIs) { // 16 TiB and 16 GiB, of which four pages are there
  const RingShape shape{
      .slots = SlotRing::max_slots, .slot_size = 1 << 20, .appendix = uint64_t{16} << 30};
  File file;
  std::unique_ptr<SlotRing> one;
  try {
    file = SlotRing::make(shape);
    one = std::make_unique<SlotRing>(file.get(), doorbell.get());
  } catch (const Error &error) {
    GTEST_SKIP() << "no room here: " << error.what();
  }
  EXPECT_EQ(one->data().size(), size_t{1} << 44);
  EXPECT_EQ(one->appendix().data() - one->data().data(), ptrdiff_t{1} << 44);
  one->appendix().back() = std::byte{7};
  const SharedMemory raw(file.get(), static_cast<size_t>(lseek(file.get(), 0, SEEK_END)));
  auto *header = static_cast<RingHeader *>(raw.data());
  const uint64_t last = SlotRing::max_slots - 1;
  reinterpret_cast<SlotControl *>(static_cast<std::byte *>(raw.data()) +
                                  header->layout.controls)[last]
      .word = 0;
  header->head = last;
  auto claim = one->try_claim(1, 5);
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->data().data(), one->data().data() + (size_t{last} << 20));
}

} // namespace

// SPDX-License-Identifier: MIT
// The memory of a worker process: its own area.
#include "memory.hpp"

#include <rdmacommon/check.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

using namespace rdmashared; // for tests alone
using rdmacommon::Child, rdmacommon::Error, rdmacommon::File, rdmacommon::SharedMemory;
using std::chrono::seconds;

namespace {

constexpr AreaShape small{
    .slots = 10, .slot_size = 72, .long_responses = 3, .largest = 100, .longest = 720};

size_t length_of(int memory) {
  struct stat about = {};
  return fstat(memory, &about) == 0 ? static_cast<size_t>(about.st_size) : 0;
}

// The numbers at the beginning of an area, as another version might have them.
struct Beginning {
  std::array<char, 8> magic;
  uint32_t version, header_size;
  AreaShape shape;
  std::array<uint64_t, 5> offsets;
};

template <typename Change> bool can_be_attached(const AreaShape &shape, Change change) {
  const File file = Area::make(shape);
  const SharedMemory memory(file.get(), length_of(file.get()));
  change(*static_cast<Beginning *>(memory.data()));
  try {
    const Area area(file.get());
    return true;
  } catch (const Error &) {
    return false;
  }
}

TEST(Memory, BothEndsHaveTheSame) {
  const File file = Area::make(small);
  const Area one(file.get()), other(file.get());
  EXPECT_EQ(one.shape(), small);
  EXPECT_EQ(other.shape(), small);
  EXPECT_EQ(one.queue_length(), 32U);
  EXPECT_EQ(other.submitted().load(), 0U);
  EXPECT_EQ(other.sleeps().load(), 0U);
  EXPECT_EQ(other.wants_event().load(), 0U);
  one.submitted() = 1;
  one.sleeps() = 2;
  one.wants_event() = 3;
  EXPECT_EQ(other.submitted().load(), 1U);
  EXPECT_EQ(other.sleeps().load(), 2U);
  EXPECT_EQ(other.wants_event().load(), 3U);
  // The queue goes round, also where the counter does.
  one.queued(3) = 77;
  EXPECT_EQ(other.queued(35).load(), 77U);
  EXPECT_EQ(&one.queued(UINT32_MAX) - &one.queued(0), 31);
}

// Fills each part with something else, and then looks whether each still has its own.
TEST(Memory, NoPartLiesInAnother) {
  for (const AreaShape &shape :
       {small, AreaShape{1, 8, 0, 0, 8}, AreaShape{600, 32, 5, 4096, 1000}}) {
    const File file = Area::make(shape);
    const Area area(file.get()), same(file.get());
    ASSERT_EQ(area.slots(0).size(), size_t{shape.slots} * shape.slot_size);
    ASSERT_EQ(area.response_buffers().size(), size_t{shape.long_responses} * shape.largest);
    area.submitted() = 0x11111111;
    area.sleeps() = 0x22222222;
    area.wants_event() = 0x33333333;
    for (uint32_t i = 0; i < area.queue_length(); ++i)
      area.queued(i) = 3 * i;
    for (uint32_t i = 0; i < shape.slots; ++i) {
      std::memset(&area.submission(i), static_cast<int>(i), sizeof(Submission));
      area.answer(i).outcome = i + 1;
      area.answer(i).length = ~i;
    }
    std::ranges::fill(area.slots(0), std::byte{0x44});
    std::ranges::fill(area.response_buffers(), std::byte{0x55});
    EXPECT_EQ(Area(file.get()).shape(), shape); // the header, too
    EXPECT_EQ(same.submitted().load(), 0x11111111U);
    EXPECT_EQ(same.sleeps().load(), 0x22222222U);
    EXPECT_EQ(same.wants_event().load(), 0x33333333U);
    for (uint32_t i = 0; i < area.queue_length(); ++i)
      ASSERT_EQ(same.queued(i).load(), 3 * i);
    for (uint32_t i = 0; i < shape.slots; ++i) {
      ASSERT_EQ(same.submission(i).length, (i & 0xff) * 0x01010101U);
      ASSERT_EQ(same.submission(i).unused, (i & 0xff) * 0x0101U);
      ASSERT_EQ(same.answer(i).outcome.load(), i + 1);
      ASSERT_EQ(same.answer(i).length, ~i);
    }
    EXPECT_TRUE(std::ranges::all_of(same.slots(0), [](auto b) { return b == std::byte{0x44}; }));
    EXPECT_TRUE(
        std::ranges::all_of(same.response_buffers(), [](auto b) { return b == std::byte{0x55}; }));
  }
}

TEST(Memory, SlotsAndResponseBuffersByNumber) {
  const File file = Area::make(small);
  const Area area(file.get());
  for (uint32_t i = 0; i < small.slots; ++i) {
    EXPECT_EQ(area.slots(i).data(), area.slots(0).data() + size_t{i} * small.slot_size);
    EXPECT_EQ(area.slots(i).size(), size_t{small.slots - i} * small.slot_size);
  }
  for (uint32_t i = 0; i < small.long_responses; ++i) {
    EXPECT_EQ(area.response_buffer(i).data(),
              area.response_buffers().data() + size_t{i} * small.largest);
    EXPECT_EQ(area.response_buffer(i).size(), small.largest);
  }
}

// A server can write to the pages of the response buffers. Nothing else may be there.
TEST(Memory, ResponseBuffersHavePagesOfTheirOwn) {
  for (const uint32_t slots : {1U, 10U, 56U, 57U, 1000U})
    for (const uint32_t largest : {1U, 100U, 4096U, 5000U}) {
      const File file = Area::make({slots, 72, 3, largest});
      const Area area(file.get());
      const auto buffers = reinterpret_cast<uintptr_t>(area.response_buffers().data());
      const auto slots_end = reinterpret_cast<uintptr_t>(area.slots(0).data()) + slots * size_t{72};
      EXPECT_EQ(buffers % 4096, 0U);
      EXPECT_GE(buffers, slots_end);
      EXPECT_EQ(length_of(file.get()) % 4096, 0U);
    }
}

TEST(Memory, ShapesThatCannotBe) {
  EXPECT_THROW(Area::make({0, 64, 0, 0}), Error);
  EXPECT_THROW(Area::make({AreaShape::max_slots + 1, 8, 0, 0}), Error);
  EXPECT_THROW(Area::make({8, 60, 0, 0}), Error);
  EXPECT_THROW(Area::make({8, 0, 0, 0}), Error); // a worker divides by it
}

TEST(Memory, AnotherVersionIsRefused) {
  EXPECT_TRUE(can_be_attached(small, [](Beginning &) {}));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.magic[0] = 'R'; }));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.magic[7] = 'b'; }));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { ++its.version; }));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.header_size += 64; }));
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_FALSE(can_be_attached(small, [i](Beginning &its) { its.offsets[i] += 8; })) << i;
    EXPECT_FALSE(can_be_attached(small, [i](Beginning &its) { its.offsets[i] = 0; })) << i;
  }
}

TEST(Memory, AShapeThatDoesNotFitIsRefused) {
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.shape.slots = 17; }));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.shape.slots = 0; }));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.shape.slot_size = 1 << 20; }));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.shape.long_responses = 1000; }));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.shape.largest = 1 << 20; }));
  // These need no more pages than there are.
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.shape.slot_size = 0; }));
  EXPECT_FALSE(can_be_attached(small, [](Beginning &its) { its.shape.slot_size = 71; }));
}

// Numbers so large that their sum goes round past 2^64, and ends where the memory does.
TEST(Memory, AShapeWhoseLengthOverflowsIsRefused) {
  const auto page_after = [](uint64_t end) { return (end + 4095) / 4096 * 4096; };
  constexpr AreaShape huge{.slots = 1 << 24,
                           .slot_size = 512,
                           .long_responses = ~uint32_t{0},
                           .largest = ~uint32_t{0},
                           .longest = 0};
  const File real = Area::make(small);
  Beginning forged{};
  std::memcpy(&forged, SharedMemory(real.get(), length_of(real.get())).data(), sizeof forged);
  const uint64_t queue = forged.offsets[0],
                 requests = queue + uint64_t{4} * huge.slots * sizeof(uint32_t),
                 data = page_after(requests + uint64_t{huge.slots} * (sizeof(Submission) + 8)),
                 buffers = page_after(data + uint64_t{huge.slots} * huge.slot_size),
                 length = page_after(buffers + uint64_t{huge.long_responses} * huge.largest);
  ASSERT_LT(length, buffers);
  forged.shape = huge;
  forged.offsets = {queue, requests, data, buffers, length};
  const File file = rdmacommon::make_shared_memory("test", length); // nobody touches most of it
  std::memcpy(SharedMemory(file.get(), length).data(), &forged, sizeof forged);
  EXPECT_THROW(Area(file.get()), Error);
}

TEST(Memory, OtherFilesAreNoArea) {
  EXPECT_THROW(Area(-1), Error);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const File from(ends[0]), to(ends[1]);
  EXPECT_THROW(Area(from.get()), Error);
  EXPECT_THROW(Area(rdmacommon::make_shared_memory("test", 16).get()), Error);
  EXPECT_THROW(Area(rdmacommon::make_shared_memory("test", 1 << 20).get()), Error); // zeros
  // The right bytes, but somebody can still make it shorter.
  const File area = Area::make(small), unsealed(memfd_create("test", MFD_CLOEXEC));
  const size_t length = length_of(area.get());
  const SharedMemory bytes(area.get(), length);
  ASSERT_EQ(write(unsealed.get(), bytes.data(), length), static_cast<ssize_t>(length));
  EXPECT_THROW(Area(unsealed.get()), Error);
}

// Returns true if the kernel can read there.
bool is_mapped(const void *at) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return false;
  const File from(ends[0]), to(ends[1]);
  return write(to.get(), at, 1) == 1;
}

TEST(Memory, AForkedChildHasNoAreaAndTakesNothingAway) {
  const File file = Area::make(small);
  auto area = std::make_unique<Area>(file.get());
  std::byte *const at = area->slots(0).data();
  ASSERT_TRUE(is_mapped(at));
  Child child([&](const rdmacommon::Link &parent) {
    const bool has_it = is_mapped(at);
    // Something else comes to lie where the area was, and stays there.
    void *page = mmap(at, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    area.reset();
    parent.send(has_it             ? "has it"
                : page != at       ? "has something there"
                : !is_mapped(page) ? "has lost something else"
                                   : "has none");
  });
  EXPECT_EQ(child.link().receive(seconds(60)), "has none");
  EXPECT_EQ(child.wait(seconds(60)), 0);
  EXPECT_TRUE(is_mapped(at)); // here it is still
  area.reset();
  EXPECT_FALSE(is_mapped(at));
}

} // namespace

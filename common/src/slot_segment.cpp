// SPDX-License-Identifier: MIT
// The memory of a slot ring: how it is made, and how a process attaches to it. What is done in it:
// slots.cpp.
#include "rdmacommon/slot_ring.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <new>
#include <string>

namespace rdmacommon {
namespace {

constexpr std::array<char, 8> magic = {'s', 'l', 'o', 't', 'r', 'i', 'n', 'g'};
constexpr uint32_t version = 3;
constexpr uint64_t max_appendix = uint64_t{16} << 30;

// [layout]
// Everything follows from the shape, so what a header says can be checked.
RingLayout layout_of(const RingShape &shape, Where where = Where::here()) {
  if (!std::has_single_bit(shape.slots) || shape.slots > SlotRing::max_slots ||
      shape.slot_size == 0 || shape.slot_size % 64 != 0 || shape.slot_size > 1 << 20 ||
      shape.appendix > max_appendix)
    throw Error("RingShape",
                "slots must be a power of two, at most 2^24; slot_size a multiple of 64 bytes, at "
                "most 1 MiB; appendix at most 16 GiB",
                where);
  // On pages of their own, so that the data, and the appendix, can be registered by themselves.
  const auto page_after = [](uint64_t end) { return (end + 4095) / 4096 * 4096; };
  RingLayout layout{.magic = magic, .version = version, .size = sizeof(RingHeader), .shape = shape};
  layout.controls = sizeof(RingHeader);
  layout.held = page_after(layout.controls + uint64_t{shape.slots} * sizeof(SlotControl));
  // Of so many counters, only pages that are written to cost memory.
  layout.data = page_after(layout.held + sizeof(SlotsHeld) * (uint64_t{SlotRing::own_worker} + 1));
  layout.appendix = page_after(layout.data + uint64_t{shape.slots} * shape.slot_size);
  layout.length = layout.appendix + shape.appendix;
  return layout;
}
// [layout]

} // namespace

// [make]
File SlotRing::make(const RingShape &shape, Where where) {
  const RingLayout layout = layout_of(shape, where);
  File file = make_shared_memory("slot_ring", layout.length, where);
  const SharedMemory memory(file.get(), layout.length); // zeros: every slot is free, in lap 0
  auto *header = new (memory.data()) RingHeader{.layout = layout};
  header->awaited.store(nothing, std::memory_order_relaxed); // nobody else has the memory yet
  return file;
}
// [make]

// [attach]
SlotRing::SlotRing(int memory, int doorbell) : process_(getpid()), doorbell_(doorbell) {
  struct stat about = {};
  check_errno(fstat(memory, &about), "fstat");
  if (about.st_size < static_cast<off_t>(sizeof(RingHeader)))
    throw Error("the shared memory", "it is no slot ring");
  memory_ = std::make_unique<SharedMemory>(memory, static_cast<size_t>(about.st_size));
  // A forked child does not get the mapping. So only a process that has attached can write to it,
  // and when that process has ended, no process writes in its name any more.
  check_errno(madvise(memory_->data(), memory_->length(), MADV_DONTFORK), "madvise");
  // Nor does a core dump, which would take longer for it: a process keeps its slots until its dump
  // has been written. And what is in the segment is not all its own.
  check_errno(madvise(memory_->data(), memory_->length(), MADV_DONTDUMP), "madvise");

  auto *base = static_cast<std::byte *>(memory_->data());
  header_ = std::launder(reinterpret_cast<RingHeader *>(base));
  const RingLayout layout = header_->layout; // copied, then checked, then used: never asked again
  if (layout.magic != magic)
    throw Error("the shared memory", "it is no slot ring");
  if (layout.version != version)
    throw Error("the slot ring", "it has version " + std::to_string(layout.version) +
                                     ", and this program " + std::to_string(version));
  if (layout != layout_of(layout.shape) || layout.length != memory_->length())
    throw Error("the slot ring", "its sizes do not fit together");
  shape_ = layout.shape;
  shift_ = static_cast<unsigned>(std::countr_zero(shape_.slots));
  controls_ = std::launder(reinterpret_cast<SlotControl *>(base + layout.controls));
  held_ = std::launder(reinterpret_cast<SlotsHeld *>(base + layout.held));
  data_ = base + layout.data;
  appendix_ = base + layout.appendix;
}
// [attach]

SlotRing::~SlotRing() {
  if (memory_ && getpid() != process_)
    memory_.release(); // there is something else at that address here, or nothing
}

} // namespace rdmacommon

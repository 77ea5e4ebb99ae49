// SPDX-License-Identifier: MIT
#include "area.hpp"

#include <rdmacommon/check.hpp>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>
#include <string>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::File, rdmacommon::SharedMemory;

// [area-layout]
// Everything follows from the shape, so what a header says can be checked.
Area::Layout::Layout(const AreaShape &of)
    : magic{'r', 'd', 'm', 'a', 'a', 'r', 'e', 'a'}, version(1), header_size(sizeof(Header)),
      shape(of) {
  const auto page_after = [](uint64_t end) { return (end + 4095) / 4096 * 4096; };
  queue = sizeof(Header);
  answers = queue + uint64_t{2} * of.slots * sizeof(Submission);
  data = page_after(answers + uint64_t{of.slots} * sizeof(Answer));
  rooms = page_after(data + uint64_t{of.slots} * of.slot_size);
  length = page_after(rooms + uint64_t{of.rooms} * of.largest);
}
// [area-layout]

// [area-make]
namespace {

// The sum of what such a shape needs does not overflow.
bool is_possible(const AreaShape &shape) {
  return shape.slots > 0 && shape.slots <= AreaShape::max_slots && shape.slot_size > 0 &&
         shape.slot_size % 8 == 0 && uint64_t{shape.rooms} * shape.largest <= uint64_t{1} << 48;
}

} // namespace

File Area::make(const AreaShape &shape) {
  if (!is_possible(shape))
    throw Error("an area", "its slots must be 1 to 2^24, and of a multiple of 8 bytes, and its "
                           "rooms 2^48 bytes together");
  const Layout layout(shape);
  File file = rdmacommon::make_shared_memory("rdma_area", layout.length);
  const SharedMemory memory(file.get(), layout.length); // zeros
  new (memory.data()) Header{.layout = layout};
  return file;
}

Area::Area(int memory) : process_(getpid()) {
  struct stat about = {};
  rdmacommon::check_errno(fstat(memory, &about), "fstat");
  if (about.st_size < static_cast<off_t>(sizeof(Header)))
    throw Error("the shared memory", "it is no area of a worker");
  memory_ = std::make_unique<SharedMemory>(memory, static_cast<size_t>(about.st_size));
  // A forked child does not get the mapping: when the process has ended, nobody writes in its name.
  // Nor does a core dump, during which the process would not end.
  for (const int advice : {MADV_DONTFORK, MADV_DONTDUMP})
    rdmacommon::check_errno(madvise(memory_->data(), memory_->length(), advice), "madvise");
  auto *base = static_cast<std::byte *>(memory_->data());
  header_ = std::launder(reinterpret_cast<Header *>(base));
  const Layout layout = header_->layout; // copied, then checked, then used
  if (!is_possible(layout.shape) || layout != Layout(layout.shape) ||
      layout.length != memory_->length())
    throw Error("the area of this process", "the sender has another version of the library");
  shape_ = layout.shape;
  queue_ = std::launder(reinterpret_cast<Submission *>(base + layout.queue));
  answers_ = std::launder(reinterpret_cast<Answer *>(base + layout.answers));
  data_ = base + layout.data;
  rooms_ = base + layout.rooms;
}
// [area-make]

Area::~Area() {
  if (memory_ && getpid() != process_)
    memory_.release(); // in a forked child, something else or nothing is at that address
}

} // namespace rdmashared

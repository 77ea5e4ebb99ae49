// SPDX-License-Identifier: MIT
#include "memory.hpp"

#include <rdmacommon/check.hpp>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <new>
#include <utility>

namespace rdmashared {

using rdmacommon::check_errno, rdmacommon::Error, rdmacommon::File, rdmacommon::SharedMemory;
using std::chrono::steady_clock;

// ---- the area of a worker process

namespace {

// timespec's times have 64 bits. On a 32-bit machine, the system call that takes such times has
// another number (futex(2), sys/syscall.h).
#ifdef SYS_futex_time64
constexpr long futex_call = SYS_futex_time64;
#else
constexpr long futex_call = SYS_futex;
#endif
static_assert(sizeof(time_t) == 8, "compile with -D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64");

uint32_t queue_length_for(const AreaShape &shape) {
  return std::bit_ceil(3 * shape.slots);
}

} // namespace

// Everything follows from the shape, so what a header says can be checked.
Area::Layout::Layout(const AreaShape &of)
    : magic{'r', 'd', 'm', 'a', 'a', 'r', 'e', 'a'}, version(4), header_size(sizeof(Header)),
      shape(of) {
  const auto page_after = [](uint64_t end) { return (end + 4095) / 4096 * 4096; };
  queue = sizeof(Header);
  requests = queue + uint64_t{queue_length_for(of)} * sizeof(uint32_t);
  data = page_after(requests + uint64_t{of.slots} * sizeof(Request));
  response_buffers = page_after(data + uint64_t{of.slots} * of.slot_size);
  length = page_after(response_buffers + uint64_t{of.long_responses} * of.largest);
}

namespace {

// The sum of what such a shape needs does not overflow.
bool is_possible(const AreaShape &shape) {
  return shape.slots > 0 && shape.slots <= AreaShape::max_slots && shape.slot_size > 0 &&
         shape.slot_size % 8 == 0 &&
         uint64_t{shape.long_responses} * shape.largest <= uint64_t{1} << 48;
}

} // namespace

File Area::make(const AreaShape &shape) {
  if (!is_possible(shape))
    throw Error("an area", "its slots must be 1 to 2^24, and of a multiple of 8 bytes, and its "
                           "response buffers 2^48 bytes together");
  const Layout layout(shape);
  File file = rdmacommon::make_shared_memory("rdma_area", layout.length);
  const SharedMemory memory(file.get(), layout.length); // zeros
  new (memory.data()) Header{.layout = layout};
  return file;
}

Area::Area(int memory) : process_(getpid()) {
  struct stat about = {};
  check_errno(fstat(memory, &about), "fstat");
  if (about.st_size < static_cast<off_t>(sizeof(Header)))
    throw Error("the shared memory", "it is no area of a worker");
  memory_ = std::make_unique<SharedMemory>(memory, static_cast<size_t>(about.st_size));
  // A forked child does not get the mapping: when the process has ended, nobody writes in its name.
  // Nor does a core dump, during which the process would not end.
  for (const int advice : {MADV_DONTFORK, MADV_DONTDUMP})
    check_errno(madvise(memory_->data(), memory_->length(), advice), "madvise");
  auto *base = static_cast<std::byte *>(memory_->data());
  header_ = std::launder(reinterpret_cast<Header *>(base));
  const Layout layout = header_->layout; // copied, then checked, then used
  if (!is_possible(layout.shape) || layout != Layout(layout.shape) ||
      layout.length != memory_->length())
    throw Error("the area of this process", "the sender has another version of the library");
  shape_ = layout.shape;
  queue_length_ = queue_length_for(shape_);
  queue_ = std::launder(reinterpret_cast<std::atomic<uint32_t> *>(base + layout.queue));
  requests_ = std::launder(reinterpret_cast<Request *>(base + layout.requests));
  data_ = base + layout.data;
  response_buffers_ = base + layout.response_buffers;
}

Area::~Area() {
  if (memory_ && getpid() != process_)
    memory_.release(); // in a forked child, something else or nothing is at that address
}

// So many free slots that follow each other. It goes on where the last search ended, so it finds
// some soon. It uses no more of the area than it needs: what is used again and again stays in the
// caches.
std::optional<uint32_t> AreaUse::find_slots(uint32_t count) {
  const auto slots = static_cast<uint32_t>(uses_.size());
  for (uint32_t free = 0, looked = 0;; ++looked) {
    if (looked == in_use_ + count) { // it has gone round
      if (in_use_ == slots)
        return std::nullopt;
      in_use_ = std::min(2 * in_use_, slots);
      looked = 0;
    }
    if (next_slot_ == in_use_)
      next_slot_ = free = 0; // a request does not go over the end
    free = is_free(next_slot_++) ? free + 1 : 0;
    if (free == count)
      return next_slot_ - count;
  }
}

// A request that nobody waits for gives its slots back once it is answered.
// @return whether this one is free now
bool AreaUse::reclaim(uint32_t slot) {
  if (given_up_[slot].slots == 0 || area_.answer(slot).outcome.load(std::memory_order_acquire) == 0)
    return false;
  release(std::exchange(given_up_[slot], {}));
  return true;
}

std::optional<uint32_t> AreaUse::find_buffer() {
  const auto find = [this] {
    return std::ranges::find_if(is_buffer_used_, [](const auto &used) { return !used; });
  };
  auto buffer = find();
  if (buffer == is_buffer_used_.end()) { // unless a request that nobody waits for has one
    for (uint32_t slot = 0; slot < uses_.size(); ++slot)
      is_free(slot);
    buffer = find();
  }
  if (buffer == is_buffer_used_.end())
    return std::nullopt;
  return static_cast<uint32_t>(buffer - is_buffer_used_.begin());
}

std::optional<AreaUse::Allocation> AreaUse::take(uint32_t slots, bool needs_buffer) {
  const auto buffer = needs_buffer ? find_buffer() : no_buffer;
  if (!buffer)
    return std::nullopt;
  const auto first = find_slots(slots);
  if (!first)
    return std::nullopt;
  for (uint32_t slot = *first; slot < *first + slots; ++slot)
    uses_[slot].store(Use::used, std::memory_order_relaxed);
  if (needs_buffer)
    is_buffer_used_[*buffer].store(true, std::memory_order_relaxed);
  return Allocation{.slot = *first, .slots = slots, .buffer = *buffer};
}

// ---- the board of a sender

namespace {

constexpr std::array<char, 8> board_magic = {'r', 'd', 'm', 'a', 'b', 'o', 'r', 'd'};
constexpr uint32_t board_version = 1;

void *map(int memory, int protection) {
  void *at = mmap(nullptr, sizeof(Board), protection, MAP_SHARED, memory, 0);
  check_errno(at == MAP_FAILED ? -1 : 0, "mmap");
  return at;
}

} // namespace

OwnBoard::OwnBoard(uint32_t servers)
    : file_(check_errno(memfd_create("rdma_board", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                        "memfd_create")) {
  check_errno(ftruncate(file_.get(), sizeof(Board)), "ftruncate");
  board_.reset(new (map(file_.get(), PROT_READ | PROT_WRITE)) Board{});
  board_->magic = board_magic;
  board_->version = board_version;
  board_->size = sizeof(Board);
  board_->servers = servers;
  // Nobody can map it writable from here on; the mapping above stays as it is.
  check_errno(fcntl(file_.get(), F_ADD_SEALS,
                    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL),
              "F_ADD_SEALS");
}

SharedBoard::SharedBoard(int memory) {
  struct stat about = {};
  check_errno(fstat(memory, &about), "fstat");
  if (about.st_size != sizeof(Board) || (fcntl(memory, F_GET_SEALS) & F_SEAL_SHRINK) == 0)
    throw Error("the shared memory", "it is no board of a sender");
  board_.reset(std::launder(static_cast<const Board *>(map(memory, PROT_READ))));
  if (board_->magic != board_magic || board_->version != board_version ||
      board_->size != sizeof(Board) || board_->servers > max_servers)
    throw Error("the board of the sender", "the sender has another version of the library");
}

void Unmap::operator()(const Board *board) const {
  munmap(const_cast<Board *>(board), sizeof *board);
}

// Sleeps until a time of the steady clock, which is CLOCK_MONOTONIC. A thread can also wait in
// shared memory that is mapped read-only (futex(2)).
void sleep_on(const std::atomic<uint32_t> &word, uint32_t seen, uint32_t bits,
              steady_clock::time_point until) {
  const auto since = std::max(std::chrono::nanoseconds(0), // the kernel takes no time before that
                              std::chrono::nanoseconds(until.time_since_epoch()));
  const timespec end{.tv_sec = since.count() / 1'000'000'000,
                     .tv_nsec = static_cast<long>(since.count() % 1'000'000'000)};
  if (syscall(futex_call, &word, FUTEX_WAIT_BITSET, seen, &end, nullptr, bits) < 0 &&
      errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
    rdmacommon::throw_errno(errno, "futex");
}

uint32_t ring(std::atomic<uint32_t> &word, uint32_t bits) {
  word.fetch_add(1, std::memory_order_release);
  const long woken = syscall(futex_call, &word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, bits);
  return static_cast<uint32_t>(std::max(woken, 0L));
}

} // namespace rdmashared

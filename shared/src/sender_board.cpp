// SPDX-License-Identifier: MIT
#include "sender_board.hpp"

#include <rdmacommon/check.hpp>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <new>

namespace rdmashared {
namespace {

using rdmacommon::check_errno, rdmacommon::Error, rdmacommon::File;
using std::chrono::steady_clock;

constexpr std::array<char, 8> magic = {'r', 'd', 'm', 'a', 'b', 'o', 'r', 'd'};
constexpr uint32_t version = 1;

void *map(int memory, int protection) {
  void *at = mmap(nullptr, sizeof(Board), protection, MAP_SHARED, memory, 0);
  check_errno(at == MAP_FAILED ? -1 : 0, "mmap");
  return at;
}

} // namespace

// [board-make]
OwnBoard::OwnBoard(uint32_t servers)
    : file_(check_errno(memfd_create("rdma_board", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                        "memfd_create")) {
  check_errno(ftruncate(file_.get(), sizeof(Board)), "ftruncate");
  board_ = new (map(file_.get(), PROT_READ | PROT_WRITE)) Board{};
  board_->magic = magic;
  board_->version = version;
  board_->size = sizeof(Board);
  board_->servers = servers;
  // Nobody can map it writable from here on; the mapping above stays as it is.
  check_errno(fcntl(file_.get(), F_ADD_SEALS,
                    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL),
              "F_ADD_SEALS");
}

OwnBoard::~OwnBoard() {
  munmap(board_, sizeof(Board));
}
// [board-make]

SharedBoard::SharedBoard(int memory) {
  struct stat about = {};
  check_errno(fstat(memory, &about), "fstat");
  if (about.st_size != sizeof(Board) || (fcntl(memory, F_GET_SEALS) & F_SEAL_SHRINK) == 0)
    throw Error("the shared memory", "it is no board of a sender");
  board_ = std::launder(static_cast<const Board *>(map(memory, PROT_READ)));
  if (board_->magic != magic || board_->version != version || board_->size != sizeof(Board) ||
      board_->servers > max_servers)
    throw Error("the board of the sender", "the sender has another version of the library");
}

SharedBoard::~SharedBoard() {
  munmap(const_cast<Board *>(board_), sizeof(Board));
}

// [futex]
// With a time of the steady clock, which is CLOCK_MONOTONIC. Shared memory may be mapped read-only
// where a thread waits (futex(2)).
void sleep_on(const std::atomic<uint32_t> &word, uint32_t seen, uint32_t bits,
              steady_clock::time_point until) {
  const auto since = std::max(std::chrono::nanoseconds(0), // the kernel takes no time before that
                              std::chrono::nanoseconds(until.time_since_epoch()));
  const timespec end{.tv_sec = since.count() / 1'000'000'000,
                     .tv_nsec = since.count() % 1'000'000'000};
  if (syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &end, nullptr, bits) < 0 &&
      errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
    rdmacommon::throw_errno(errno, "futex");
}

uint32_t ring(std::atomic<uint32_t> &word, uint32_t bits) {
  word.fetch_add(1, std::memory_order_release);
  const long woken = syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, bits);
  return static_cast<uint32_t>(std::max(woken, 0L));
}
// [futex]

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// The area of a worker, the board of the sender, and the two calls of the kernel that let a worker
// sleep and wake it.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <memory>

constexpr uint32_t worker_count = 3; // at most 32

// [area]
// The area of lesson 18 with one slot, whose request and response are numbers.
struct Area {
  std::atomic<uint32_t> submitted;
  std::atomic<uint32_t> is_answered;
  uint64_t number;
  std::atomic<uint32_t> sleeps; // new: the worker sleeps
};

// One for all workers. They can read it, and only the sender can write it.
struct Board {
  std::atomic<uint32_t> is_asleep; // the sender sleeps: a worker has to wake it
  std::atomic<uint32_t> bell;      // the workers sleep on this word
};
// [area]

// [board]
struct Unmap {
  void operator()(Board *board) const { munmap(board, sizeof(Board)); }
};
using unique_board = std::unique_ptr<Board, Unmap>;

inline unique_board map_board(const rdmacommon::File &file, int protection) {
  void *at = mmap(nullptr, sizeof(Board), protection, MAP_SHARED, file.get(), 0);
  rdmacommon::check_errno(at == MAP_FAILED ? -1 : 0, "mmap");
  return unique_board(static_cast<Board *>(at));
}

// The sender's mapping. No child gets it, and nobody can map the file writable afterwards.
inline unique_board make_board(rdmacommon::File &file) {
  file = rdmacommon::File(rdmacommon::check_errno(
      memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd_create"));
  rdmacommon::check_errno(ftruncate(file.get(), sizeof(Board)), "ftruncate"); // zeros
  unique_board board = map_board(file, PROT_READ | PROT_WRITE);
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  rdmacommon::check_errno(fcntl(file.get(), F_ADD_SEALS, seals), "F_ADD_SEALS");
  rdmacommon::check_errno(madvise(board.get(), sizeof(Board), MADV_DONTFORK), "madvise");
  return board;
}
// [board]

// timespec's times have 64 bits. On a 32-bit machine, the system call that takes such times has
// another number (futex(2), sys/syscall.h).
#ifdef SYS_futex_time64
inline constexpr long futex_call = SYS_futex_time64;
#else
inline constexpr long futex_call = SYS_futex;
#endif
static_assert(sizeof(time_t) == 8, "compile with -D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64");

// [futex]
// Sleeps while the word is `seen`, until somebody rings for one of these bits.
// @return false if the deadline has come
inline bool sleep_on(const std::atomic<uint32_t> &word, uint32_t seen, uint32_t bits,
                     std::chrono::steady_clock::time_point deadline) {
  const auto ns = std::chrono::nanoseconds(deadline.time_since_epoch()).count();
  const timespec until{.tv_sec = ns / 1'000'000'000,
                       .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
  if (syscall(futex_call, &word, FUTEX_WAIT_BITSET, seen, &until, nullptr, bits) == 0)
    return true;
  if (errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
    rdmacommon::throw_errno(errno, "futex");
  return errno != ETIMEDOUT; // EAGAIN: the word is not `seen` any more
}

// Changes the word, and wakes those who sleep on it for one of these bits.
inline void ring(std::atomic<uint32_t> &word, uint32_t bits) {
  word.fetch_add(1, std::memory_order_release);
  syscall(futex_call, &word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, bits);
}
// [futex]

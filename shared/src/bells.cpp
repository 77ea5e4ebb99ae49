// SPDX-License-Identifier: MIT
#include "bells.hpp"

#include <rdmacommon/check.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace rdmashared {
namespace {

using std::chrono::milliseconds, std::chrono::steady_clock;

constexpr milliseconds short_nap(1); // where the kernel has no such call (before Linux 5.16)

// steady_clock is CLOCK_MONOTONIC.
timespec as_timespec(steady_clock::time_point until) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch());
  return {.tv_sec = since.count() / 1'000'000'000, .tv_nsec = since.count() % 1'000'000'000};
}

void check_sleep(long rc) {
  if (rc < 0 && errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
    rdmacommon::throw_errno(errno, "futex");
}

uint32_t *word_of(std::atomic<uint32_t> *bell) {
  return reinterpret_cast<uint32_t *>(bell);
}

void sleep_on_one(const BellSeen &bell, uint32_t bits, steady_clock::time_point until) {
  const timespec end = as_timespec(until);
  check_sleep(
      syscall(SYS_futex, word_of(bell.bell), FUTEX_WAIT_BITSET, bell.seen, &end, nullptr, bits));
}

#ifdef SYS_futex_waitv
// @return false if the kernel does not know this call
bool sleep_on_all(std::span<const BellSeen> bells, steady_clock::time_point until) {
  std::array<futex_waitv, max_bells> words{};
  for (size_t i = 0; i < bells.size(); ++i)
    words.at(i) = {.val = bells[i].seen,
                   .uaddr = reinterpret_cast<uintptr_t>(word_of(bells[i].bell)),
                   .flags = FUTEX_32};
  const timespec end = as_timespec(until);
  const long rc = syscall(SYS_futex_waitv, words.data(), bells.size(), 0, &end, CLOCK_MONOTONIC);
  if (rc < 0 && errno == ENOSYS)
    return false;
  check_sleep(rc);
  return true;
}
#else
bool sleep_on_all(std::span<const BellSeen>, steady_clock::time_point) {
  return false;
}
#endif

} // namespace

void sleep_on(std::span<const BellSeen> bells, uint32_t bits, steady_clock::time_point until) {
  if (bells.size() > max_bells)
    throw rdmacommon::Error("the sleep", "there are more than 128 bells");
  if (bells.size() == 1)
    sleep_on_one(bells.front(), bits, until);
  else if (!bells.empty() && !sleep_on_all(bells, until))
    sleep_on_one(bells.front(), bits, std::min(until, steady_clock::now() + short_nap));
}

uint32_t wake(std::atomic<uint32_t> &word, uint32_t bits) {
  const long woken =
      syscall(SYS_futex, word_of(&word), FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, bits);
  return static_cast<uint32_t>(std::max(woken, 0L));
}

uint32_t ring(std::atomic<uint32_t> &bell, uint32_t bits) {
  bell.fetch_add(1, std::memory_order_release);
  return wake(bell, bits);
}

} // namespace rdmashared

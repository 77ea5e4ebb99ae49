// SPDX-License-Identifier: MIT
// Where callers sleep: futex words in shared memory. Many callers share a bell, and one system call
// wakes all of them whose answers have come.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmashared {

constexpr uint32_t every_bit = ~uint32_t{0};
constexpr size_t max_bells = 128; // of one sleep: futex_waitv(2)

// [bell]
// Read the bell, then tell the sender that you sleep, then sleep: a ring in between ends the sleep
// at once.
struct BellSeen {
  std::atomic<uint32_t> *bell;
  uint32_t seen;
};
// [bell]

// Sleeps until one of the bells rings, until that time, or returns early for no reason.
// @param bits of the waiter: ring() wakes only those that it names. With several bells, every_bit
// @throws Error if there are more than 128 bells
void sleep_on(std::span<const BellSeen> bells, uint32_t bits,
              std::chrono::steady_clock::time_point until);

// Wakes the sleepers on a word that has changed already.
// @return how many
uint32_t wake(std::atomic<uint32_t> &word, uint32_t bits);

// Changes the bell, and wakes its sleepers.
// @return how many
uint32_t ring(std::atomic<uint32_t> &bell, uint32_t bits);

} // namespace rdmashared

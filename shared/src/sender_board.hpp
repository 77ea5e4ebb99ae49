// SPDX-License-Identifier: MIT
// Layer: memory. The board of a sender: one page, which all its workers read, and which only the
// sender can write. It holds the bells that wake workers, and says whether the sender sleeps.
#pragma once

#include <rdmacommon/processes.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace rdmashared {

constexpr uint32_t max_workers = 1024; // of a board
constexpr uint32_t max_servers = 256;

// [board]
struct Board {
  std::array<char, 8> magic;
  uint32_t version, size;
  uint32_t servers;

  alignas(64) std::atomic<uint32_t> is_asleep; // the sender: a worker has to wake it
  std::atomic<uint32_t> busy;                  // workers with requests under way
  alignas(64) std::atomic<uint32_t> is_over;   // the sender has ended
  std::atomic<uint32_t> changes;               // of the words below, which workers sleep on
  std::array<std::atomic<uint8_t>, max_servers> connections; // to each server that are up
  // Workers sleep here, 32 on each. A call of the kernel wakes those whose responses have come.
  alignas(64) std::array<std::atomic<uint32_t>, max_workers / 32> bells;
};
static_assert(sizeof(Board) <= 4096);
// [board]

// The sender's own mapping, which can write.
class OwnBoard {
public:
  explicit OwnBoard(uint32_t servers);
  ~OwnBoard();
  OwnBoard(const OwnBoard &) = delete;
  OwnBoard &operator=(const OwnBoard &) = delete;

  Board &operator*() const { return *board_; }
  Board *operator->() const { return board_; }
  int fd() const { return file_.get(); } // to share; nobody else can map it writable

private:
  rdmacommon::File file_;
  Board *board_;
};

// A worker's mapping.
class SharedBoard {
public:
  explicit SharedBoard(int memory); // @throws Error if it is no board, or one of another version
  ~SharedBoard();
  SharedBoard(const SharedBoard &) = delete;
  SharedBoard &operator=(const SharedBoard &) = delete;

  const Board &operator*() const { return *board_; }
  const Board *operator->() const { return board_; }

private:
  const Board *board_;
};

// [bell]
// Sleeps until the word is not `seen` any more and somebody rings for one of these bits, until that
// time, or returns early for no reason. In this order: read the word, say that you sleep, look for
// what you wait for, sleep. A ring in between ends the sleep at once.
void sleep_on(const std::atomic<uint32_t> &word, uint32_t seen, uint32_t bits,
              std::chrono::steady_clock::time_point until);

// Changes the word, and wakes its sleepers.
// @return how many
uint32_t ring(std::atomic<uint32_t> &word, uint32_t bits);
// [bell]

} // namespace rdmashared

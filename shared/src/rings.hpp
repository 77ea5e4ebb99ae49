// SPDX-License-Identifier: MIT
// Layer: wire. The two rings of a connection, without the connection: which slots a message goes
// to, which runs of slots the sender posts, and which messages are in a run that has come.
#pragma once

#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

namespace rdmashared {

// [out-ring]
// The ring of messages for the other side. The other side has a ring of the same shape, and tells
// how many runs it has taken out of that. Only then are their slots used again, on both sides.
class OutRing {
public:
  // @param group most slots of a run that has several messages
  OutRing(const Shape &shape, uint32_t group);

  std::span<std::byte> memory() { return memory_; }
  uint32_t slot_size() const { return slot_size_; }

  // Whether put() may be called for a message of so many slots.
  bool has_room(uint64_t slots) const { return slots <= free_; }
  // Puts a message behind the others.
  // @param bytes behind the header; in two parts, which need not follow each other in memory
  void put(const Header &header, std::span<const std::byte> bytes,
           std::span<const std::byte> more = {});

  struct Piece {
    rdmacommon::Run run;
    uint32_t bytes, messages; // messages that begin in it
  };
  // The next run, as far as the other side can take one.
  // @return false if there is none
  bool next(Piece &piece);
  // All that has been put has been given out by next().
  bool is_empty() const { return closed_.empty() && open_.run.count == 0; }

  // The other side has taken so many runs since the connection began, modulo 2^24.
  // @throws Error if it was not sent so many
  void taken(uint32_t runs);

private:
  void add(uint32_t slots, uint32_t bytes, bool begins);
  void close();
  void copy(size_t offset, std::span<const std::byte> bytes);

  const uint32_t slots_, slot_size_, group_;
  std::vector<std::byte> memory_;
  uint32_t head_ = 0, free_; // the next slot; slots that may be used
  Piece open_{};             // a run that can still grow
  std::deque<Piece> closed_;
  std::array<uint8_t, runs_ahead> sent_{}; // slots of each run that is under way
  uint32_t sent_runs_ = 0, taken_runs_ = 0;
};
// [out-ring]

// [in-ring]
// The ring of messages from the other side, which can write anything into it at any time.
class InRing {
public:
  explicit InRing(const Shape &shape);

  std::span<std::byte> memory() { return memory_; }

  // Takes a run that has come. Calls f(header, bytes) for each message that is complete. The header
  // is a copy. The bytes can still be the ring's: copy them, then check them, then use them.
  // @param length how many bytes of the run have come
  // @throws Error if it is not the run that must come next, or if a message cannot be one
  template <typename Function> void take(rdmacommon::Run run, uint32_t length, Function f) {
    check(run, length);
    std::span<const std::byte> bytes =
        std::span(memory_).subspan(size_t{run.first} * slot_size_, length);
    if (!begun_.empty() && !go_on(bytes))
      return;
    if (!begun_.empty()) {
      f(begun_header_, std::span<const std::byte>(begun_).subspan(Header::bytes));
      begun_.clear();
    }
    while (!bytes.empty()) {
      const Header header = checked(bytes);
      const size_t needed = Header::bytes + body_of(header);
      if (needed > bytes.size()) { // it goes on in the next run
        begin(header, needed, bytes);
        return;
      }
      f(header, bytes.subspan(Header::bytes, needed - Header::bytes));
      const size_t padded = (needed + slot_size_ - 1) / slot_size_ * slot_size_;
      bytes = bytes.subspan(std::min(padded, bytes.size()));
    }
  }

  // Whether the other side must be told how many runs have been taken, before it can go on sending.
  bool has_news() const {
    return taken_ - told_ >= runs_ahead / 4 || slots_taken_ - slots_told_ >= slots_ / 4;
  }
  // To be told: the number of runs, modulo 2^24.
  uint32_t tell() {
    told_ = taken_;
    slots_told_ = slots_taken_;
    return taken_ % rdmacommon::Run::first_limit;
  }
  // How often that can be, at most, before the other side has heard of the first time.
  static constexpr uint32_t news_ahead = 8;

private:
  void check(rdmacommon::Run run, uint32_t length);
  Header checked(std::span<const std::byte> bytes) const;
  static size_t body_of(const Header &header);
  void begin(const Header &header, size_t needed, std::span<const std::byte> bytes);
  bool go_on(std::span<const std::byte> &bytes);

  const uint32_t slots_, slot_size_;
  std::vector<std::byte> memory_;
  uint32_t next_ = 0; // the slot with which the next run begins
  uint32_t taken_ = 0, told_ = 0;
  uint64_t slots_taken_ = 0, slots_told_ = 0;
  Header begun_header_{};
  std::vector<std::byte> begun_; // of a message that goes on, as far as it has come
  size_t begun_needed_ = 0;
};
// [in-ring]

} // namespace rdmashared

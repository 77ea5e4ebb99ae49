// SPDX-License-Identifier: MIT
#include "rings.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Run;

OutRing::OutRing(const Shape &shape, uint32_t group)
    : slots_(shape.slots), slot_size_(shape.slot_size), group_(std::min(group, max_run)),
      memory_(size_t{shape.slots} * shape.slot_size), free_(shape.slots) {}

// [put]
// [put-message]
void OutRing::put(const Header &header, std::span<const std::byte> bytes,
                  std::span<const std::byte> more) {
  const size_t offset = size_t{head_} * slot_size_;
  to_wire(std::span<std::byte, Header::bytes>(memory_.data() + offset, Header::bytes), header);
  copy(offset + Header::bytes, bytes);
  if (!more.empty())
    copy(offset + Header::bytes + bytes.size(), more);
  const auto length = static_cast<uint32_t>(Header::bytes + bytes.size() + more.size());
  const uint32_t slots = (length + slot_size_ - 1) / slot_size_;
  free_ -= slots;
  if (open_.run.count + slots > group_)
    close();
  for (uint32_t left = slots, bytes_left = length; left > 0;) {
    const uint32_t count = std::min({left, slots_ - head_, max_run - open_.run.count});
    add(count, std::min(bytes_left, count * slot_size_), left == slots);
    left -= count;
    bytes_left -= std::min(bytes_left, count * slot_size_);
    if (head_ == 0 || open_.run.count == max_run) // a run ends where the ring does
      close();
  }
}
// [put-message]

// From an offset on, which can lie behind the end of the ring.
void OutRing::copy(size_t offset, std::span<const std::byte> bytes) {
  const size_t at = offset < memory_.size() ? offset : offset - memory_.size();
  const size_t first = std::min(bytes.size(), memory_.size() - at);
  std::copy_n(bytes.begin(), first, memory_.begin() + static_cast<std::ptrdiff_t>(at));
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(first), bytes.end(), memory_.begin());
}

void OutRing::add(uint32_t slots, uint32_t bytes, bool begins) {
  if (open_.run.count == 0)
    open_.run.first = head_;
  open_.bytes = open_.run.count * slot_size_ + bytes;
  open_.run.count += slots;
  open_.messages += begins;
  head_ = head_ + slots == slots_ ? 0 : head_ + slots;
}

void OutRing::close() {
  if (open_.run.count > 0)
    closed_.push_back(std::exchange(open_, {}));
}
// [put]

// [next]
bool OutRing::next(Piece &piece) {
  if (is_empty() || sent_runs_ - taken_runs_ == runs_ahead)
    return false;
  if (closed_.empty())
    piece = std::exchange(open_, {});
  else {
    piece = closed_.front();
    closed_.pop_front();
  }
  sent_[sent_runs_++ % runs_ahead] = static_cast<uint8_t>(piece.run.count);
  return true;
}

void OutRing::taken(uint32_t runs) {
  const uint32_t more = (runs - taken_runs_) % Run::first_limit;
  if (more > sent_runs_ - taken_runs_)
    throw Error("the peer", "it says that it has taken more runs than were sent");
  for (uint32_t i = 0; i < more; ++i)
    free_ += sent_[taken_runs_++ % runs_ahead];
}
// [next]

InRing::InRing(const Shape &shape)
    : slots_(shape.slots), slot_size_(shape.slot_size),
      memory_(size_t{shape.slots} * shape.slot_size) {}

// [check-run]
void InRing::check(Run run, uint32_t length) {
  if (run.first != next_ || run.count == 0 || run.count > slots_ - run.first)
    throw Error("the peer's run", "it is not the one that must come next");
  if (length > run.count * slot_size_ || length <= (run.count - 1) * slot_size_)
    throw Error("the peer's run",
                std::to_string(length) + " bytes are not " + std::to_string(run.count) + " slots");
  next_ = run.first + run.count == slots_ ? 0 : run.first + run.count;
  ++taken_;
  slots_taken_ += run.count;
}

Header InRing::checked(std::span<const std::byte> bytes) const {
  if (bytes.size() < Header::bytes)
    throw Error("the peer's message", "it is too short for a header");
  std::array<std::byte, Header::bytes> copy;
  std::memcpy(copy.data(), bytes.data(), copy.size());
  const Header header = header_in(copy);
  if (Header::bytes + body_of(header) > memory_.size())
    throw Error("the peer's message", "it is longer than the ring");
  return header;
}
// [check-run]

// Of bytes behind the header.
size_t InRing::body_of(const Header &header) {
  if (header.kind == Kind::long_response)
    return 0;
  return size_t{header.length} + (header.kind == Kind::long_request ? Room::bytes : 0);
}

// [go-on]
void InRing::begin(const Header &header, size_t needed, std::span<const std::byte> bytes) {
  if (bytes.size() % slot_size_ != 0)
    throw Error("the peer's message", "it ends before its length");
  begun_header_ = header;
  begun_needed_ = needed;
  begun_.reserve(needed);
  begun_.assign(bytes.begin(), bytes.end());
}

// @return whether the message is complete; then `bytes` begins with the next one
bool InRing::go_on(std::span<const std::byte> &bytes) {
  const size_t missing = begun_needed_ - begun_.size(), part = std::min(missing, bytes.size());
  begun_.insert(begun_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
  if (part < missing) {
    if (bytes.size() % slot_size_ != 0)
      throw Error("the peer's message", "it ends before its length");
    return false;
  }
  bytes = bytes.subspan(std::min(bytes.size(), (part + slot_size_ - 1) / slot_size_ * slot_size_));
  return true;
}
// [go-on]

} // namespace rdmashared

// SPDX-License-Identifier: MIT
#include "wire.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Run;

bool is_possible(const Shape &shape) {
  return shape.slots >= 8 && shape.slots <= max_slots && shape.slot_size >= 32 &&
         shape.slot_size % 8 == 0 && shape.slot_size <= 1 << 20 &&
         uint64_t{shape.slots} * shape.slot_size <= uint64_t{1} << 31 && shape.window > 0 &&
         shape.window <= 1 << 20 && shape.largest <= 1 << 26 && shape.long_responses <= 1 << 16 &&
         (shape.long_responses == 0) == (shape.largest == 0);
}

HelloBytes to_bytes(const Hello &hello, uint16_t oldest) {
  HelloBytes made{};
  const Shape &shape = hello.shape;
  put_numbers(made.bytes, protocol_magic, hello.version, static_cast<uint16_t>(hello.purpose),
              shape.slots, shape.slot_size, shape.window, shape.long_responses, shape.largest,
              hello.address, hello.token, hello.rkey, oldest);
  return made;
}

std::optional<Hello> hello_in(std::span<const std::byte> bytes, Rejection &rejection) {
  rejection = Rejection::nonsense;
  if (bytes.size() < sizeof(HelloBytes)) // rdma_cm may fill it up with zeros
    return std::nullopt;
  uint32_t magic = 0;
  uint16_t newest = 0, purpose = 0, oldest = 0;
  Hello hello{};
  Shape &shape = hello.shape;
  get_numbers(bytes, magic, newest, purpose, shape.slots, shape.slot_size, shape.window,
              shape.long_responses, shape.largest, hello.address, hello.token, hello.rkey, oldest);
  hello.purpose = static_cast<Purpose>(purpose);
  hello.version = std::min(newest, newest_version);
  const bool is_spoken = hello.version >= std::max(oldest, oldest_version);
  if (magic == protocol_magic && !is_spoken)
    rejection = Rejection::version;
  if (magic != protocol_magic || !is_spoken ||
      (hello.purpose != Purpose::data &&
       (hello.purpose != Purpose::requests || !is_possible(shape))))
    return std::nullopt;
  rejection = Rejection::none;
  return hello;
}

WelcomeBytes to_bytes(const Welcome &welcome) {
  WelcomeBytes made{};
  put_numbers(made.bytes, protocol_magic, welcome.version, static_cast<uint16_t>(welcome.rejection),
              welcome.window, welcome.rkey, welcome.address, welcome.token);
  return made;
}

std::optional<Welcome> welcome_in(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(WelcomeBytes))
    return std::nullopt;
  uint32_t magic = 0;
  uint16_t rejection = 0;
  Welcome welcome{};
  get_numbers(bytes, magic, welcome.version, rejection, welcome.window, welcome.rkey,
              welcome.address, welcome.token);
  if (magic != protocol_magic)
    return std::nullopt;
  const bool is_spoken = welcome.version >= oldest_version && welcome.version <= newest_version;
  welcome.rejection = is_spoken ? static_cast<Rejection>(rejection) : Rejection::version;
  return welcome;
}

const char *words_for(Rejection rejection) {
  switch (rejection) {
  case Rejection::none:
    return "it has accepted";
  case Rejection::version:
    return "it speaks another version of the protocol";
  case Rejection::full:
    return "it has as many connections as it takes";
  case Rejection::closing:
    return "it is about to end";
  case Rejection::too_large:
    return "one client does not get so many slots, or such large ones";
  case Rejection::nonsense:
    return "it does not understand our request";
  case Rejection::stranger:
    return "it knows no session for this data connection";
  case Rejection::memory:
    return "its clients have all the memory that it gives to clients";
  case Rejection::unable:
    return "it cannot take this client; its log says why";
  }
  return "it gives no reason";
}

// ---- the two rings

OutRing::OutRing(const Shape &shape, uint32_t group)
    : slots_(shape.slots), slot_size_(shape.slot_size), group_(std::min(group, max_run)),
      memory_(size_t{shape.slots} * shape.slot_size), free_(shape.slots) {}

// [put-message]
void OutRing::put(const Header &header, std::span<const std::byte> bytes,
                  std::span<const std::byte> more) {
  const size_t offset = size_t{head_} * slot_size_;
  to_wire(std::span<std::byte, Header::bytes>(memory_.data() + offset, Header::bytes), header);
  if (!bytes.empty())
    copy(offset + Header::bytes, bytes);
  if (!more.empty())
    copy(offset + Header::bytes + bytes.size(), more);
  const auto length = static_cast<uint32_t>(Header::bytes + bytes.size() + more.size());
  const auto slots = static_cast<uint32_t>(slots_for(bytes.size() + more.size(), slot_size_));
  free_ -= slots;
  if (open_.run.count + slots > group_)
    close();
  if (slots < slots_ - head_ && slots < max_run - open_.run.count) // most messages
    return add(slots, length, true);
  for (uint32_t left = slots, bytes_left = length; left > 0;) {
    const uint32_t count = std::min(left, std::min(slots_ - head_, max_run - open_.run.count));
    add(count, std::min(bytes_left, count * slot_size_), left == slots);
    left -= count;
    bytes_left -= std::min(bytes_left, count * slot_size_);
    if (head_ == 0 || open_.run.count == max_run) // a run ends where the ring does
      close();
  }
}
// [put-message]

void OutRing::close() {
  if (open_.run.count > 0)
    closed_.push_back(std::exchange(open_, {}));
}

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

InRing::InRing(const Shape &shape)
    : slots_(shape.slots), slot_size_(shape.slot_size),
      memory_(size_t{shape.slots} * shape.slot_size) {}

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

// [go-on]
void InRing::begin(const Header &header, size_t needed, std::span<const std::byte> bytes) {
  if (needed > memory_.size())
    throw Error("the peer's message", "it is longer than the ring");
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
  bytes = bytes.subspan(std::min(bytes.size(), padded(part)));
  return true;
}
// [go-on]

} // namespace rdmashared

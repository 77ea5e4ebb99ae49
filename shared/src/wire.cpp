// SPDX-License-Identifier: MIT
#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <endian.h>

#include <bit>
#include <concepts>
#include <cstring>
#include <string>

namespace rdmashared {
namespace {

using rdmacommon::Error, rdmacommon::SlotHeader, rdmacommon::SlotRing;

// Puts numbers behind each other in network byte order, so that no padding and no alignment gets
// onto the wire.
class Writer {
public:
  explicit Writer(std::span<std::byte> into) : into_(into) {}
  template <std::unsigned_integral Number> void put(Number number) {
    for (size_t i = sizeof number; i-- > 0; into_ = into_.subspan(1))
      into_.front() = static_cast<std::byte>(number >> 8 * i);
  }

private:
  std::span<std::byte> into_;
};

class Reader {
public:
  explicit Reader(std::span<const std::byte> from) : from_(from) {}
  template <std::unsigned_integral Number> Number get() {
    Number number = 0;
    for (size_t i = 0; i < sizeof number; ++i, from_ = from_.subspan(1))
      number = static_cast<Number>(uint64_t{number} << 8 | static_cast<uint8_t>(from_.front()));
    return number;
  }

private:
  std::span<const std::byte> from_;
};

[[noreturn]] void nonsense(const char *who, const std::string &what) {
  throw Error(who, what);
}

uint64_t room_in(uint32_t slots, const Shape &shape) {
  return uint64_t{slots} * shape.slot_size - sizeof(SlotHeader);
}

} // namespace

HelloBytes to_bytes(const Hello &hello, uint16_t version) {
  HelloBytes made{};
  Writer out(made.bytes);
  out.put(protocol_magic);
  out.put(version);
  out.put(static_cast<uint16_t>(hello.purpose));
  out.put(hello.shape.slots);
  out.put(hello.shape.slot_size);
  out.put(hello.shape.window);
  out.put(hello.shape.largest);
  out.put(hello.answers_address);
  out.put(hello.data_address);
  out.put(hello.token);
  out.put(hello.answers_rkey);
  out.put(hello.data_rkey);
  return made;
}

std::optional<Hello> hello_in(std::span<const std::byte> bytes, Refusal &refusal) {
  refusal = Refusal::nonsense;
  if (bytes.size() < sizeof(HelloBytes)) // rdma_cm may fill it up with zeros
    return std::nullopt;
  Reader in(bytes);
  if (in.get<uint32_t>() != protocol_magic)
    return std::nullopt;
  if (in.get<uint16_t>() != protocol_version) {
    refusal = Refusal::version;
    return std::nullopt;
  }
  Hello hello{};
  hello.purpose = static_cast<Purpose>(in.get<uint16_t>());
  hello.shape.slots = in.get<uint32_t>();
  hello.shape.slot_size = in.get<uint32_t>();
  hello.shape.window = in.get<uint32_t>();
  hello.shape.largest = in.get<uint32_t>();
  hello.answers_address = in.get<uint64_t>();
  hello.data_address = in.get<uint64_t>();
  hello.token = in.get<uint64_t>();
  hello.answers_rkey = in.get<uint32_t>();
  hello.data_rkey = in.get<uint32_t>();
  if (hello.purpose != Purpose::data &&
      (hello.purpose != Purpose::requests || !is_possible(hello.shape)))
    return std::nullopt;
  refusal = Refusal::none;
  return hello;
}

WelcomeBytes to_bytes(const Welcome &welcome) {
  WelcomeBytes made{};
  Writer out(made.bytes);
  out.put(protocol_magic);
  out.put(protocol_version);
  out.put(static_cast<uint16_t>(welcome.refusal));
  out.put(welcome.window);
  out.put(welcome.requests_rkey);
  out.put(welcome.requests_address);
  out.put(welcome.token);
  return made;
}

std::optional<Welcome> welcome_in(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(WelcomeBytes))
    return std::nullopt;
  Reader in(bytes);
  if (in.get<uint32_t>() != protocol_magic)
    return std::nullopt;
  const auto version = in.get<uint16_t>();
  Welcome welcome{};
  welcome.refusal = static_cast<Refusal>(in.get<uint16_t>());
  if (version != protocol_version)
    welcome.refusal = Refusal::version;
  welcome.window = in.get<uint32_t>();
  welcome.requests_rkey = in.get<uint32_t>();
  welcome.requests_address = in.get<uint64_t>();
  welcome.token = in.get<uint64_t>();
  return welcome;
}

const char *words_for(Refusal refusal) {
  switch (refusal) {
  case Refusal::none:
    return "it has not";
  case Refusal::version:
    return "it speaks another version of the protocol";
  case Refusal::full:
    return "it has as many connections as it takes";
  case Refusal::closing:
    return "it is about to end";
  case Refusal::too_large:
    return "so many slots, or such large ones, it does not give to one client";
  case Refusal::nonsense:
    return "it does not understand what we ask for";
  case Refusal::stranger:
    return "it knows of no session for this data connection";
  case Refusal::memory:
    return "its clients have all the memory that it gives to clients";
  case Refusal::unable:
    return "it cannot take this client; its log says why";
  }
  return "it does not say why";
}

// [is-possible]
bool is_possible(const Shape &shape) {
  return std::has_single_bit(shape.slots) && shape.slots <= SlotRing::max_slots &&
         shape.slot_size >= 64 && shape.slot_size % 64 == 0 && shape.slot_size <= 1 << 20 &&
         uint64_t{shape.slots} * shape.slot_size <= uint64_t{1} << 31 && shape.window > 0 &&
         shape.window <= shape.slots && shape.largest <= 1 << 26;
}
// [is-possible]

uint64_t memory_for(const Shape &shape) {
  // The mirror, a copy of it, the answers, what the data connection sends, and a byte to mark each
  // slot.
  return uint64_t{shape.slots} * (3 * uint64_t{shape.slot_size} + shape.largest + 1);
}

// [checked-request]
Message checked_request(const SlotHeader &wire, uint32_t slot, uint32_t left, const Shape &shape) {
  const SlotHeader header = rdmacommon::from_wire(wire);
  const Message message{.kind = static_cast<Kind>(header.kind & 0xff),
                        .service = static_cast<uint8_t>(header.kind >> 8),
                        .slot = slot,
                        .slots = header.flags,
                        .length = header.length,
                        .id = header.id};
  if (message.kind != Kind::request && message.kind != Kind::post &&
      (message.kind != Kind::long_request || shape.largest == 0))
    nonsense("a request", "it is of kind " + std::to_string(header.kind));
  if (message.slots == 0 || message.slots > left)
    nonsense("a request", "it takes " + std::to_string(message.slots) + " slots, and " +
                              std::to_string(left) + " can have come");
  if (message.length > room_in(message.slots, shape))
    nonsense("a request", "it is longer than its slots");
  if ((message.id & (shape.slots - 1)) != slot)
    nonsense("a request", "its id is that of another slot");
  return message;
}
// [checked-request]

Message checked_answer(const SlotHeader &wire, const Message &asked, const Shape &shape) {
  const SlotHeader header = rdmacommon::from_wire(wire);
  Message message = asked;
  message.kind = static_cast<Kind>(header.kind & 0xff);
  message.length = header.length;
  if (header.id != asked.id || header.flags != asked.slots || header.kind >> 8 != asked.service)
    nonsense("an answer", "it belongs to another request");
  const bool is_post = asked.kind == Kind::post;
  if (message.kind != Kind::response && message.kind != Kind::failure && message.kind != Kind::done)
    nonsense("an answer", "it is of kind " + std::to_string(header.kind));
  if (is_post != (message.kind == Kind::done) ||
      (asked.kind == Kind::long_request && message.kind == Kind::response))
    nonsense("an answer", "it belongs to no request");
  if (message.length > room_in(asked.slots, shape))
    nonsense("an answer", "it is longer than the room of its request");
  return message;
}

SlotHeader header_of(const Message &message) {
  return rdmacommon::to_wire(
      {.length = message.length,
       .kind = static_cast<uint16_t>(message.service << 8 | static_cast<uint16_t>(message.kind)),
       .flags = static_cast<uint16_t>(message.slots),
       .id = message.id});
}

} // namespace rdmashared

// SPDX-License-Identifier: MIT
#include "wire.hpp"

#include <endian.h>

#include <concepts>
#include <cstring>

namespace rdmashared {
namespace {

template <std::unsigned_integral Number> Number swapped(Number number) {
  if constexpr (sizeof number == 1)
    return number;
  else if constexpr (sizeof number == 2)
    return htobe16(number);
  else if constexpr (sizeof number == 4)
    return htobe32(number);
  else
    return htobe64(number);
}

// Puts numbers behind each other in network byte order, so no padding gets onto the wire.
template <std::unsigned_integral... Numbers>
void put(std::span<std::byte> into, Numbers... numbers) {
  std::byte *at = into.data();
  const auto put_one = [&at](auto number) {
    const auto wire = swapped(number);
    std::memcpy(at, &wire, sizeof wire);
    at += sizeof wire;
  };
  (put_one(numbers), ...);
}

template <std::unsigned_integral... Numbers>
void get(std::span<const std::byte> from, Numbers &...numbers) {
  const std::byte *at = from.data();
  const auto get_one = [&at](auto &number) {
    std::memcpy(&number, at, sizeof number);
    number = swapped(number);
    at += sizeof number;
  };
  (get_one(numbers), ...);
}

} // namespace

bool is_possible(const Shape &shape) {
  return shape.slots >= 8 && shape.slots <= max_slots && shape.slot_size >= 32 &&
         shape.slot_size % 8 == 0 && shape.slot_size <= 1 << 20 &&
         uint64_t{shape.slots} * shape.slot_size <= uint64_t{1} << 31 && shape.window > 0 &&
         shape.window <= 1 << 20 && shape.largest <= 1 << 26 && shape.rooms <= 1 << 16 &&
         (shape.rooms == 0) == (shape.largest == 0);
}

HelloBytes to_bytes(const Hello &hello, uint16_t version) {
  HelloBytes made{};
  const Shape &shape = hello.shape;
  put(made.bytes, protocol_magic, version, static_cast<uint16_t>(hello.purpose), shape.slots,
      shape.slot_size, shape.window, shape.rooms, shape.largest, hello.address, hello.token,
      hello.rkey);
  return made;
}

std::optional<Hello> hello_in(std::span<const std::byte> bytes, Refusal &refusal) {
  refusal = Refusal::nonsense;
  if (bytes.size() < sizeof(HelloBytes)) // rdma_cm may fill it up with zeros
    return std::nullopt;
  uint32_t magic = 0;
  uint16_t version = 0, purpose = 0;
  Hello hello{};
  Shape &shape = hello.shape;
  get(bytes, magic, version, purpose, shape.slots, shape.slot_size, shape.window, shape.rooms,
      shape.largest, hello.address, hello.token, hello.rkey);
  hello.purpose = static_cast<Purpose>(purpose);
  if (magic == protocol_magic && version != protocol_version)
    refusal = Refusal::version;
  if (magic != protocol_magic || version != protocol_version ||
      (hello.purpose != Purpose::data &&
       (hello.purpose != Purpose::requests || !is_possible(shape))))
    return std::nullopt;
  refusal = Refusal::none;
  return hello;
}

WelcomeBytes to_bytes(const Welcome &welcome) {
  WelcomeBytes made{};
  put(made.bytes, protocol_magic, protocol_version, static_cast<uint16_t>(welcome.refusal),
      welcome.window, welcome.rkey, welcome.address, welcome.token);
  return made;
}

std::optional<Welcome> welcome_in(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(WelcomeBytes))
    return std::nullopt;
  uint32_t magic = 0;
  uint16_t version = 0, refusal = 0;
  Welcome welcome{};
  get(bytes, magic, version, refusal, welcome.window, welcome.rkey, welcome.address, welcome.token);
  if (magic != protocol_magic)
    return std::nullopt;
  welcome.refusal = version == protocol_version ? static_cast<Refusal>(refusal) : Refusal::version;
  return welcome;
}

const char *words_for(Refusal refusal) {
  switch (refusal) {
  case Refusal::none:
    return "it has accepted";
  case Refusal::version:
    return "it speaks another version of the protocol";
  case Refusal::full:
    return "it has as many connections as it takes";
  case Refusal::closing:
    return "it is about to end";
  case Refusal::too_large:
    return "one client does not get so many slots, or such large ones";
  case Refusal::nonsense:
    return "it does not understand our request";
  case Refusal::stranger:
    return "it knows no session for this data connection";
  case Refusal::memory:
    return "its clients have all the memory that it gives to clients";
  case Refusal::unable:
    return "it cannot take this client; its log says why";
  }
  return "it gives no reason";
}

void to_wire(std::span<std::byte, Header::bytes> into, const Header &header) {
  put(into, header.length, header.room, header.id, header.limit_ms,
      static_cast<uint8_t>(header.kind), header.service, uint16_t{0});
}

void to_wire(std::span<std::byte, Room::bytes> into, const Room &room) {
  put(into, room.address, room.rkey, room.length);
}

Header header_in(std::span<const std::byte, Header::bytes> bytes) {
  Header header{};
  uint8_t kind = 0;
  get(bytes, header.length, header.room, header.id, header.limit_ms, kind, header.service);
  header.kind = static_cast<Kind>(kind);
  return header;
}

Room room_in(std::span<const std::byte, Room::bytes> bytes) {
  Room room{};
  get(bytes, room.address, room.rkey, room.length);
  return room;
}

} // namespace rdmashared

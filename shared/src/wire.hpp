// SPDX-License-Identifier: MIT
// Layer: wire. The messages between a sender and a server. On the wire everything is in network
// byte order; in these structs it is in host byte order.
//
//     sender                                                            server
//       |  REQ, Hello: the shape, and where its incoming ring is       --->  |
//       |  <---  REP, Welcome: how many may be under way, where the server's is
//       |        (or REJ, Welcome: why not)                                  |
//       |  (with a data connection: REQ, Hello with the token --->  |  <---  REP)
//       |  WRITE_WITH_IMM: a run of slots with requests                --->  |
//       |  <---                WRITE_WITH_IMM: a run of slots with responses |
//       |  <---  by the data connection: WRITE of a long response            |
//       |  <-->  WRITE_WITH_IMM of no slots: how many runs have been taken   |
//
// Each side has a ring of slots for what comes. The other side fills it, strictly in order, and
// sends runs of slots that follow each other. A message begins with a slot, and takes as many as it
// needs. It can go over the end of a run, and over the end of the ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rdmashared {

constexpr uint32_t protocol_magic = 0x52425853; // "RBXS"
constexpr uint16_t protocol_version = 4;

// [shape]
// The sizes that both sides must agree on.
struct Shape {
  uint32_t slots;     // of each of the two rings
  uint32_t slot_size; // bytes, a multiple of 8, at least a Header
  uint32_t window;    // requests that may be without a response
  uint32_t rooms;     // responses of any length under way at a time; 0: no data connection
  uint32_t largest;   // bytes of such a response

  bool operator==(const Shape &) const = default;
};

constexpr uint32_t max_slots = 1 << 24;
constexpr uint32_t max_run = 255;    // slots of a run
constexpr uint32_t runs_ahead = 256; // runs that one side may send before the other has taken them

bool is_possible(const Shape &shape);

// Slots of the longest message. A side that has taken runs need not say so before they are a
// quarter of the ring.
inline uint32_t longest_message(uint32_t slots) {
  return slots - slots / 4;
}
// [shape]

// [hello]
enum class Purpose : uint16_t { requests, data };

// The private data of a connection request: at most 56 bytes.
struct Hello {
  Purpose purpose;
  Shape shape;
  uint64_t address; // of the ring into which the server writes
  uint64_t token;   // of Purpose::data: the session that it belongs to
  uint32_t rkey;
};

enum class Refusal : uint16_t {
  none,
  version,
  full,
  closing,
  too_large,
  nonsense,
  stranger,
  memory,
  unable
};

// The private data of the answer, or of the rejection.
struct Welcome {
  Refusal refusal;
  uint32_t window;  // as in the Hello, or less
  uint64_t address; // of the ring into which the sender writes
  uint32_t rkey;
  uint64_t token; // which a data connection must name
};
// [hello]

struct HelloBytes {
  std::byte bytes[48];
};
struct WelcomeBytes {
  std::byte bytes[32];
};
HelloBytes to_bytes(const Hello &hello, uint16_t version = protocol_version);
WelcomeBytes to_bytes(const Welcome &welcome);
inline WelcomeBytes refused(Refusal why) {
  return to_bytes(Welcome{.refusal = why, .window = 0, .address = 0, .rkey = 0, .token = 0});
}
// Nothing if it is none, or one of another version; `refusal` says which.
std::optional<Hello> hello_in(std::span<const std::byte> bytes, Refusal &refusal);
std::optional<Welcome> welcome_in(std::span<const std::byte> bytes);

const char *words_for(Refusal refusal);

// [header]
enum class Kind : uint8_t {
  // From the sender:
  request = 1,  // wants a response
  long_request, // wants a response of any length; a Room stands before the request's bytes
  post,         // wants none
  cancel,       // nobody waits for the response to the request with this id
  ping,
  // From the server:
  response,      // the bytes are behind the header
  long_response, // `length` bytes have gone by the data connection; none are behind the header
  failure,       // why there is none, in words
  expired,       // its time limit had passed, or it was cancelled, before the handler began
  pong,
  alive,   // nothing: that it is acknowledged shows that the client's host lives
  closing, // no more requests, please
};

// What a message begins with.
struct Header {
  uint32_t length;   // bytes behind it; see Kind::long_response
  uint32_t room;     // of a request: most bytes of its response
  uint64_t id;       // of a request, and of what answers it
  uint32_t limit_ms; // of a request: how long it is worth something, from now on; 0: always
  Kind kind;
  uint8_t service;

  static constexpr uint32_t bytes = 24; // on the wire
};

// Where a long response goes.
struct Room {
  uint64_t address;
  uint32_t rkey, length;

  static constexpr uint32_t bytes = 16;
};

void to_wire(std::span<std::byte, Header::bytes> into, const Header &header);
void to_wire(std::span<std::byte, Room::bytes> into, const Room &room);
Header header_in(std::span<const std::byte, Header::bytes> bytes);
Room room_in(std::span<const std::byte, Room::bytes> bytes);
// [header]

// [id]
// The sender's name for a request: which slot of which worker. The generation tells it from an
// earlier request there.
struct RequestId {
  uint16_t worker, generation;
  uint32_t slot;

  uint64_t packed() const { return uint64_t{worker} << 48 | uint64_t{generation} << 32 | slot; }
  static RequestId unpacked(uint64_t id) {
    return {.worker = static_cast<uint16_t>(id >> 48),
            .generation = static_cast<uint16_t>(id >> 32),
            .slot = static_cast<uint32_t>(id)};
  }
};
// [id]

// Slots of a message with so many bytes behind its header.
inline uint64_t slots_for(uint64_t bytes, uint32_t slot_size) {
  return (Header::bytes + bytes + slot_size - 1) / slot_size;
}

} // namespace rdmashared

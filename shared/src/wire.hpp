// SPDX-License-Identifier: MIT
// What a shared client and a slot server say to each other. Everything is in network byte order on
// the wire, and in host byte order in these structs, apart from the two that say otherwise.
//
//     client                                                            server
//       |  REQ, Hello: shape, where answers and data may be written  --->  |
//       |  <---  REP, Welcome: how many may be under way, where the mirror is
//       |        (or REJ, Welcome: why not)                                |
//       |  (with a data connection: REQ, Hello with the session's token --->  |  <---  REP)
//       |  WRITE_WITH_IMM of a run of requests                        --->  |
//       |  <---                         WRITE_WITH_IMM of a run of answers  |
//       |  <---   by the data connection: WRITE_WITH_IMM of a long response  |
//       |  <---                      WRITE_WITH_IMM of no slots: "closing"  |
#pragma once

#include <rdmacommon/slot_runs.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rdmashared {

constexpr uint32_t protocol_magic = 0x52425853; // "RBXS"
constexpr uint16_t protocol_version = 3;

// [shape]
// What both sides must agree on.
struct Shape {
  uint32_t slots;     // a power of two
  uint32_t slot_size; // bytes, a multiple of 64
  uint32_t window;    // how many requests may be without an answer
  uint32_t largest;   // bytes of a response by the data connection; 0: there is no such connection
};
// [shape]

// [hello]
enum class Purpose : uint16_t { requests, data };

// The private data of a connection request: the 56 bytes that rdma_cm leaves for it.
struct Hello {
  Purpose purpose;
  Shape shape;
  uint64_t answers_address; // slots * slot_size bytes, into which the server may write
  uint64_t data_address;    // slots * largest bytes
  uint64_t token;           // of Purpose::data: whose data, as the Welcome said
  uint32_t answers_rkey, data_rkey;
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
  uint32_t window;           // as the Hello asked, or less
  uint64_t requests_address; // slots * slot_size bytes, into which the client may write
  uint32_t requests_rkey;
  uint64_t token; // the secret that a data connection has to know
};
// [hello]

// As bytes, and back. The reverse says nothing if it is none, or one of another version: `refusal`
// says which.
struct HelloBytes {
  std::byte bytes[56];
};
struct WelcomeBytes {
  std::byte bytes[32];
};
HelloBytes to_bytes(const Hello &hello, uint16_t version = protocol_version);
WelcomeBytes to_bytes(const Welcome &welcome);
inline WelcomeBytes refused(Refusal why) {
  return to_bytes(
      Welcome{.refusal = why, .window = 0, .requests_address = 0, .requests_rkey = 0, .token = 0});
}
std::optional<Hello> hello_in(std::span<const std::byte> bytes, Refusal &refusal);
std::optional<Welcome> welcome_in(std::span<const std::byte> bytes);

const char *words_for(Refusal refusal);

// Whether a server can have such slots at all. What they cost is another question: memory_for().
bool is_possible(const Shape &shape);
// Bytes that a server needs for a client of this shape.
uint64_t memory_for(const Shape &shape);

// [message]
// The lower 8 bits of SlotHeader::kind; the upper ones are the service. SlotHeader::flags is how
// many slots the request took. The lower 48 bits of SlotHeader::id are its position: which slot it
// is in, and how many times the ring had been gone round; the upper ones are its worker.
enum class Kind : uint16_t {
  request = 1,  // wants a response in its slots
  long_request, // wants a response of any length, by the data connection
  post,         // wants none but "done"
  response,     // the response, behind the header
  failure,      // why there is none, in words, behind the header
  done,         // of a post: its slots are free
  data, // never on the wire: the response to a long_request, whose immediate data say it all
};

constexpr unsigned position_bits = 48;

struct Message {
  Kind kind;
  uint8_t service;
  uint32_t slot, slots, length;
  uint64_t id;
};
// [message]

// Checks a header that has come against what it can be. Pass a copy of it.
// @param slot where it stands; `left`: slots that it can have from there on
// @throws Error if it cannot be
Message checked_request(const rdmacommon::SlotHeader &wire, uint32_t slot, uint32_t left,
                        const Shape &shape);
// @param asked the request that was sent from that slot
Message checked_answer(const rdmacommon::SlotHeader &wire, const Message &asked,
                       const Shape &shape);

// As a header on the wire.
rdmacommon::SlotHeader header_of(const Message &message);

} // namespace rdmashared

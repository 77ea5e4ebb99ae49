// SPDX-License-Identifier: MIT
// Layer: wire. The messages between a sender and a server, and the two rings that they go through,
// without any RDMA call. On the wire everything is in network byte order; in the structs it is
// in host byte order.
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

#include "rdmashared/caller.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>

#include <endian.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace rdmashared {

// ---- the bytes of a message

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
void put_numbers(std::span<std::byte> into, Numbers... numbers) {
  std::byte *at = into.data();
  const auto put_one = [&at](auto number) {
    const auto wire = swapped(number);
    std::memcpy(at, &wire, sizeof wire);
    at += sizeof wire;
  };
  (put_one(numbers), ...);
}

template <std::unsigned_integral... Numbers>
void get_numbers(std::span<const std::byte> from, Numbers &...numbers) {
  const std::byte *at = from.data();
  const auto get_one = [&at](auto &number) {
    std::memcpy(&number, at, sizeof number);
    number = swapped(number);
    at += sizeof number;
  };
  (get_one(numbers), ...);
}

constexpr uint32_t protocol_magic = 0x52425853; // "RBXS"
// The versions of the protocol that this library speaks.
constexpr uint16_t oldest_version = 5, newest_version = 5;

// The sizes that both sides must agree on.
struct Shape {
  uint32_t slots;          // number of slots in each of the two rings
  uint32_t slot_size;      // bytes, a multiple of 8, at least a Header
  uint32_t window;         // requests that may be without a response
  uint32_t long_responses; // responses of any length under way at a time; 0: no data connection
  uint32_t largest;        // bytes of such a response

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

// The use of a connection: messages in the rings, or only long responses.
enum class Purpose : uint16_t { requests, data };

// The private data of a connection request: at most 56 bytes. On the wire there is also the oldest
// version that the client speaks.
struct Hello {
  Purpose purpose;
  Shape shape;
  uint64_t address; // address of the ring into which the server writes
  uint64_t token;   // its session's token (Purpose::data), or the client's secret
  uint32_t rkey;
  uint16_t version = newest_version; // the newest one that both speak
};

// The reason why a server refuses a client; none: it accepts the client.
enum class Rejection : uint16_t {
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
  uint16_t version = newest_version; // the Hello's
  Rejection rejection;
  uint32_t window;  // as in the Hello, or less
  uint64_t address; // address of the ring into which the sender writes
  uint32_t rkey;
  uint64_t token; // the session's token, which a data connection must name
};

// A Hello as it is sent.
struct HelloBytes {
  std::byte bytes[52];
};
// A Welcome as it is sent.
struct WelcomeBytes {
  std::byte bytes[32];
};
HelloBytes to_bytes(const Hello &hello, uint16_t oldest = oldest_version);
WelcomeBytes to_bytes(const Welcome &welcome);
inline WelcomeBytes rejecting_welcome(Rejection why) {
  return to_bytes(Welcome{.rejection = why, .window = 0, .address = 0, .rkey = 0, .token = 0});
}
// Returns nothing if the bytes are no Hello, or if there is no version that both speak. `rejection`
// then says why.
std::optional<Hello> hello_in(std::span<const std::byte> bytes, Rejection &rejection);
std::optional<Welcome> welcome_in(std::span<const std::byte> bytes);

const char *words_for(Rejection rejection);

// The kind of a message. Its number is sent.
enum class Kind : uint8_t {
  // Kinds that the sender sends:
  request = 1,  // wants a response
  long_request, // wants a response of any length; a ResponseBuffer stands before its bytes
  post,         // wants none
  cancel,       // nobody waits for the response to the request with this id
  ping,
  // Kinds that the server sends:
  response,      // the bytes are behind the header
  long_response, // `length` bytes have gone by the data connection; none are behind the header
  failure,       // the reason why there is none, in words
  expired,       // its time limit had passed, or it was cancelled, before the handler began
  pong,
  alive,           // nothing: that it is acknowledged shows that the client's host lives
  closing,         // no more requests, please
  answer_too_long, // for max_response of the request; in words
};

// The outcome that an answer of this kind means.
inline Outcome outcome_of(Kind kind) {
  return kind == Kind::failure           ? Outcome::refused
         : kind == Kind::expired         ? Outcome::expired
         : kind == Kind::answer_too_long ? Outcome::answer_too_long
                                         : Outcome::response;
}

// The beginning of a message.
struct Header {
  uint32_t length;       // bytes behind it; see Kind::long_response
  uint32_t max_response; // bytes, of a request
  uint64_t id;           // the number of a request, repeated in its cancel and its answer
  uint32_t limit_ms;     // a request's time limit from now on, in milliseconds; 0: none
  Kind kind;
  uint8_t service;

  static constexpr uint32_t bytes = 24; // on the wire
};

// The client's memory into which a long response goes.
struct ResponseBuffer {
  uint64_t address;
  uint32_t rkey, length;

  static constexpr uint32_t bytes = 16;
};

inline void to_wire(std::span<std::byte, Header::bytes> into, const Header &header) {
  put_numbers(into, header.length, header.max_response, header.id, header.limit_ms,
              static_cast<uint8_t>(header.kind), header.service, uint16_t{0});
}

inline Header header_in(std::span<const std::byte, Header::bytes> bytes) {
  Header header;
  uint8_t kind;
  get_numbers(bytes, header.length, header.max_response, header.id, header.limit_ms, kind,
              header.service);
  header.kind = static_cast<Kind>(kind);
  return header;
}

inline void to_wire(std::span<std::byte, ResponseBuffer::bytes> into,
                    const ResponseBuffer &buffer) {
  put_numbers(into, buffer.address, buffer.rkey, buffer.length);
}

inline ResponseBuffer response_buffer_in(std::span<const std::byte, ResponseBuffer::bytes> bytes) {
  ResponseBuffer buffer;
  get_numbers(bytes, buffer.address, buffer.rkey, buffer.length);
  return buffer;
}

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

// Slots of a message with so many bytes behind its header.
inline uint64_t slots_for(uint64_t bytes, uint32_t slot_size) {
  const uint64_t length = Header::bytes + bytes;
  return length <= slot_size ? 1 : (length + slot_size - 1) / slot_size; // nearly always one
}

// ---- the two rings

// The ring of messages for the other side. The other side has a ring of the same shape, and tells
// how many runs it has taken out of that. Only then are their slots used again, on both sides.
class OutRing {
public:
  // @param group most slots of a run that has several messages
  OutRing(const Shape &shape, uint32_t group);

  std::span<std::byte> memory() { return memory_; }
  uint32_t slot_size() const { return slot_size_; }

  // True if put() may be called for a message of this many slots.
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
  // The open run grows by a part of a message.
  void add(uint32_t slots, uint32_t bytes, bool begins) {
    if (open_.run.count == 0)
      open_.run.first = head_;
    open_.bytes = open_.run.count * slot_size_ + bytes;
    open_.run.count += slots;
    open_.messages += begins;
    head_ = head_ + slots == slots_ ? 0 : head_ + slots;
  }
  void close();
  // Copies bytes to an offset, which can lie behind the end of the ring.
  // @param bytes at least one
  void copy(size_t offset, std::span<const std::byte> bytes) {
    const size_t at = offset < memory_.size() ? offset : offset - memory_.size();
    const size_t first = std::min(bytes.size(), memory_.size() - at);
    std::memcpy(memory_.data() + at, bytes.data(), first);
    if (first < bytes.size())
      std::memcpy(memory_.data(), bytes.data() + first, bytes.size() - first);
  }

  const uint32_t slots_, slot_size_, group_;
  std::vector<std::byte> memory_;
  uint32_t head_ = 0, free_; // the next slot; slots that may be used
  Piece open_{};             // a run that can still grow
  std::deque<Piece> closed_;
  std::array<uint8_t, runs_ahead> sent_{}; // slots of each run that is under way
  uint32_t sent_runs_ = 0, taken_runs_ = 0;
};

// The ring of messages from the other side, which can write anything into it at any time.
class InRing {
public:
  explicit InRing(const Shape &shape);

  std::span<std::byte> memory() { return memory_; }

  // Counts a run that has come, and that take() has not taken yet. So a side that does not wait for
  // credits cannot make the other one remember more and more runs.
  // @throws Error if there was no credit for it
  void came(rdmacommon::Run run) {
    slots_came_ += run.count;
    if (++came_ - credited_ > runs_ahead || slots_came_ - slots_credited_ > slots_)
      throw rdmacommon::Error("the peer's run", "there was no credit for it");
  }
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
      const Header header = header_of(bytes);
      const size_t needed = size_of(header);
      if (needed > bytes.size()) // it goes on in the next run
        return begin(header, needed, bytes);
      f(header, bytes.subspan(Header::bytes, needed - Header::bytes));
      bytes = bytes.subspan(std::min(padded(needed), bytes.size()));
    }
  }

  // True if a credit is due. The other side needs it before it can go on sending.
  bool owes_credit() const {
    return taken_ - credited_ >= runs_ahead / 4 || slots_taken_ - slots_credited_ >= slots_ / 4;
  }
  // The number for the next credit: the runs that have been taken, modulo 2^24.
  uint32_t next_credit() {
    credited_ = taken_;
    slots_credited_ = slots_taken_;
    return taken_ % rdmacommon::Run::first_limit;
  }
  // Most credits that can be under way at a time.
  static constexpr uint32_t credits_ahead = 8;

private:
  void check(rdmacommon::Run run, uint32_t length);
  static Header header_of(std::span<const std::byte> bytes) {
    if (bytes.size() < Header::bytes)
      throw rdmacommon::Error("the peer's message", "it is too short for a header");
    std::array<std::byte, Header::bytes> copy;
    std::memcpy(copy.data(), bytes.data(), copy.size());
    return header_in(copy);
  }
  // The distance in bytes from a message of this size to the next one.
  size_t padded(size_t bytes) const {
    return bytes <= slot_size_ ? slot_size_ : (bytes + slot_size_ - 1) / slot_size_ * slot_size_;
  }
  // Bytes of a message.
  static size_t size_of(const Header &header) {
    if (header.kind == Kind::long_response)
      return Header::bytes;
    return size_t{Header::bytes} + header.length +
           (header.kind == Kind::long_request ? ResponseBuffer::bytes : 0);
  }
  void begin(const Header &header, size_t needed, std::span<const std::byte> bytes);
  bool go_on(std::span<const std::byte> &bytes);

  const uint32_t slots_, slot_size_;
  std::vector<std::byte> memory_;
  uint32_t next_ = 0;                            // the slot with which the next run begins
  uint32_t came_ = 0, taken_ = 0, credited_ = 0; // runs so far
  uint64_t slots_came_ = 0, slots_taken_ = 0, slots_credited_ = 0;
  Header begun_header_{};
  std::vector<std::byte> begun_; // the bytes of an incomplete message that have come so far
  size_t begun_needed_ = 0;
};

} // namespace rdmashared

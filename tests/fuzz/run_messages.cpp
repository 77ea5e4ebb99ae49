// SPDX-License-Identifier: MIT
// Fuzzes what comes in runs: the ring of messages from a peer that writes anything, and an honest
// one, whose messages must come as they were put. And the messages of three lessons: the datagrams
// of 08 and 14, and 30's directory. The input is a byte that chooses which, and then the bytes.
#include "fuzz.hpp"

#include "wire.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <deque>
#include <vector>

// The lessons' own: each has a `Kind` and a `Settings` of its own.
namespace datagrams {
void datagram(std::span<const uint8_t> bytes);
}
namespace multicast {
void group_datagram(std::span<const uint8_t> bytes);
}
namespace device_memory {
void directory(std::span<const uint8_t> bytes);
}

namespace {

using namespace rdmashared;
using rdmacommon::Error, rdmacommon::Run;

Shape some_shape(Input &input) {
  return {.slots = 8U + input.get<uint8_t>() % 64,
          .slot_size = 32U + input.get<uint8_t>() % 5 * 8,
          .window = 8,
          .long_responses = 0,
          .largest = 0};
}

uint64_t body_of(const Header &header) {
  return header.kind == Kind::long_response
             ? 0
             : header.length + (header.kind == Kind::long_request ? ResponseBuffer::bytes : 0);
}

void from_a_liar(Input &input) {
  const Shape shape = some_shape(input);
  InRing ring(shape);
  uint32_t next = 0;
  while (!input.is_empty()) {
    const auto what = input.get<uint8_t>();
    const uint32_t count = input.get<uint8_t>();
    // Mostly the run that must come next.
    const Run run{.first = what < 200 ? next : input.get<uint16_t>(), .count = count};
    const uint32_t slots = std::min(count, shape.slots - std::min(run.first, shape.slots));
    const auto bytes = input.take(size_t{slots} * shape.slot_size);
    if (run.first < shape.slots)
      std::ranges::copy(std::as_bytes(bytes), ring.memory().begin() + run.first * shape.slot_size);
    const uint32_t length =
        what % 4 != 0 ? count * shape.slot_size : static_cast<uint32_t>(bytes.size());
    ring.came(run);
    ring.take(run, length, [&](const Header &header, std::span<const std::byte> body) {
      require(body.size() == body_of(header), "a message has the length that its header says");
      const std::vector<std::byte> copy(body.begin(), body.end()); // none of it lies outside
      require(std::ranges::equal(copy, body), "it stays as it is");
    });
    next = (run.first + count) % shape.slots;
    if (ring.owes_credit())
      require(ring.next_credit() < Run::first_limit,
              "a number of runs fits into the immediate data");
  }
}

void from_an_honest_peer(Input &input) {
  const Shape shape = some_shape(input);
  OutRing out(shape, 1U + input.get<uint8_t>() % 255);
  InRing in(shape);
  std::deque<std::pair<uint64_t, std::vector<std::byte>>> expected;
  for (uint64_t id = 1; !input.is_empty(); ++id) {
    const auto what = input.get<uint8_t>();
    const size_t length = input.get<uint16_t>() % (longest_message(shape.slots) * shape.slot_size -
                                                   Header::bytes + size_t{1});
    if (out.has_room(slots_for(length, shape.slot_size))) {
      const std::vector<std::byte> body(length, static_cast<std::byte>(id));
      const size_t cut = what % (length + 1);
      out.put({.length = static_cast<uint32_t>(length), .id = id, .kind = Kind::response},
              std::span(body).first(cut), std::span(body).subspan(cut));
      expected.emplace_back(id, body);
    }
    OutRing::Piece piece{};
    while (what % 3 != 0 && out.next(piece)) {
      require(piece.run.count > 0 && piece.run.count <= max_run &&
                  piece.run.first + piece.run.count <= shape.slots,
              "a run lies in the ring");
      const size_t at = size_t{piece.run.first} * shape.slot_size;
      std::copy_n(out.memory().begin() + static_cast<std::ptrdiff_t>(at), piece.bytes,
                  in.memory().begin() + static_cast<std::ptrdiff_t>(at));
      in.came(piece.run);
      in.take(piece.run, piece.bytes, [&](const Header &header, std::span<const std::byte> body) {
        require(!expected.empty() && header.id == expected.front().first &&
                    std::ranges::equal(body, expected.front().second),
                "messages come as they were put, in this order");
        expected.pop_front();
      });
    }
    if (in.owes_credit())
      out.taken(in.next_credit());
    if (what >= 250) // a lie: it throws, or it changes nothing that was not so
      try {
        out.taken(input.get<uint32_t>() % Run::first_limit);
        return;
      } catch (const Error &) {
      }
  }
  for (OutRing::Piece piece{}; out.next(piece);) {
  }
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Input input(bytes, size);
  const auto which = input.get<uint8_t>() % 5;
  try {
    switch (which) {
    case 0:
      from_a_liar(input);
      break;
    case 2: {
      const auto bytes_of_both = input.rest();
      datagrams::datagram(bytes_of_both);
      multicast::group_datagram(bytes_of_both);
      break;
    }
    case 3:
      device_memory::directory(input.rest());
      break;
    default:
      from_an_honest_peer(input);
    }
  } catch (const Error &) { // the right outcome for nonsense
    require(which != 1 && which != 4, "an honest peer is right");
  }
  return 0;
}

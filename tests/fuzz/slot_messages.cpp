// SPDX-License-Identifier: MIT
// Fuzzes what comes in slots and in immediate data: runs, headers of requests and of answers, and
// long messages that come in several runs. And the messages of four lessons: the datagrams of
// 08 and 14, 21's slots, and 30's directory. The input is a byte that chooses which, and then the
// bytes.
#include "fuzz.hpp"

#include "long_messages.hpp"
#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <algorithm>
#include <memory>
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
namespace group_send {
void inbox(std::span<const uint8_t> bytes);
}

namespace {

using namespace rdmashared;
using rdmacommon::Error, rdmacommon::Run, rdmacommon::SlotHeader;

Shape some_shape(Input &input) {
  return {.slots = uint32_t{1} << input.get<uint8_t>() % 12,
          .slot_size = (input.get<uint8_t>() % 8 + 1U) * 64,
          .window = input.get<uint8_t>() % 8 + 1U,
          .largest = input.get<uint8_t>() % 2 * 4096U};
}

uint64_t room_in(uint32_t slots, const Shape &shape) {
  return uint64_t{slots} * shape.slot_size - sizeof(SlotHeader);
}

// As Session::take_run() does: runs come, each with headers in it.
void requests(Input &input) {
  const Shape shape = some_shape(input);
  std::vector<bool> slots(shape.slots);
  Joined joined;
  Message coming{};
  const auto mark = [&](const Message &message) {
    for (uint32_t i = 0; i < message.slots; ++i)
      slots.at(message.slot + i) = true; // at(): all of them exist
    require(message.length <= room_in(message.slots, shape), "a request fits into its slots");
  };
  while (!input.is_empty()) {
    const Run run = rdmacommon::checked_run(input.get<uint32_t>(), shape.slots);
    require(run.count > 0 && run.first + run.count <= shape.slots, "a run is within the slots");
    if (joined.is_open()) {
      if (joined.add(run))
        mark(coming);
      continue;
    }
    const uint32_t end = run.first + run.count;
    for (uint32_t slot = run.first; slot < end;) {
      const bool can_be_first_part =
          slot == run.first && run.count == rdmacommon::SlotRing::longest_run;
      const uint32_t left = can_be_first_part ? shape.slots - slot : end - slot;
      const Message request = checked_request(input.get<SlotHeader>(), slot, left, shape);
      require(request.slots > 0 && request.slots <= left, "a request has the slots that can come");
      if (request.slots > run.count) {
        coming = request;
        joined.begin(slot, request.slots);
        joined.add(run);
        break;
      }
      mark(request);
      slot += request.slots;
    }
  }
}

void answers(Input &input) {
  const Shape shape = some_shape(input);
  const auto asked = input.get<SlotHeader>();
  const auto slot = input.get<uint16_t>() % shape.slots;
  const Message request = checked_request(asked, slot, shape.slots - slot, shape);
  while (!input.is_empty()) {
    const Message answer = checked_answer(input.get<SlotHeader>(), request, shape);
    require(answer.id == request.id && answer.slots == request.slots && answer.slot == slot,
            "an answer is to its request");
    require(answer.length <= room_in(answer.slots, shape), "an answer fits into its slots");
    require((answer.kind == Kind::done) == (request.kind == Kind::post), "done is a post's");
    require(header_of(answer).id ==
                rdmacommon::to_wire({.length = 0, .kind = 0, .flags = 0, .id = answer.id}).id,
            "a header can be written back");
  }
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Input input(bytes, size);
  const auto which = input.get<uint8_t>() % 5;
  try {
    switch (which) {
    case 0:
      requests(input);
      break;
    case 1:
      answers(input);
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
      group_send::inbox(input.rest());
    }
  } catch (const Error &) { // which is what should become of nonsense
  }
  return 0;
}

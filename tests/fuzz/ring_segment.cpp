// SPDX-License-Identifier: MIT
// Fuzzes what a process finds in shared memory that another one has made: the header of a ring, and
// the answers behind its slots. The input is a byte that chooses, and then what stands there.
#include "fuzz.hpp"

#include "answer_table.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

using namespace rdmacommon;

namespace {

constexpr rdmashared::Shape answers_shape{.slots = 8, .slot_size = 64, .window = 8, .largest = 128};
constexpr size_t controls_at = 64; // in the appendix: AnswerTable::Layout

struct Segment {
  RingShape shape{.slots = answers_shape.slots,
                  .slot_size = answers_shape.slot_size,
                  .appendix = rdmashared::AnswerTable::bytes_for(answers_shape)};
  File memory = SlotRing::make(shape);
  File doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  SharedMemory raw{memory.get(), static_cast<size_t>(lseek(memory.get(), 0, SEEK_END))};
};

// A header that differs from a right one in some bytes, or in all.
void header(Input &input) {
  Segment segment;
  auto *bytes = static_cast<uint8_t *>(segment.raw.data());
  while (!input.is_empty()) {
    const auto at = input.get<uint8_t>() % sizeof(RingLayout);
    const auto change = input.take(std::min(size_t{input.get<uint8_t>()}, sizeof(RingLayout) - at));
    std::memcpy(bytes + at, change.data(), change.size());
  }
  const SlotRing ring(segment.memory.get(), segment.doorbell.get());
  // Accepted: then all that it has is within the memory.
  const auto end = [&](std::span<std::byte> part) {
    for (size_t at = 0; at < part.size(); at += 4096)
      part[at] = std::byte{1}; // the kernel says if it is not
    return part.size();
  };
  require(end(ring.data()) + end(ring.appendix()) <= segment.raw.length(), "all of it is there");
}

void answers(Input &input) {
  Segment segment;
  SlotRing ring(segment.memory.get(), segment.doorbell.get());
  const auto written = rdmashared::AnswerTable(ring, answers_shape.largest); // as the sender does
  static_cast<void>(written);
  const auto appendix = ring.appendix();
  // The status in front, if the input wants that, and the words of all answers.
  const auto change = [&](size_t at, size_t size) {
    const auto from = input.take(std::min(size, appendix.size() - at));
    std::memcpy(appendix.data() + at, from.data(), from.size());
  };
  if (input.get<uint8_t>() % 2 == 0)
    change(0, sizeof(rdmashared::LaneStatus));
  rdmashared::AnswerTable table(ring);
  while (!input.is_empty()) {
    const auto slot = input.get<uint8_t>() % answers_shape.slots;
    change(controls_at + slot * sizeof(rdmashared::AnswerControl),
           sizeof(rdmashared::AnswerControl));
    const uint64_t position = slot + uint64_t{input.get<uint8_t>()} * answers_shape.slots;
    const auto answer = table.answer(position);
    require(answer.bytes.size() <= std::max<size_t>(table.slots().size(), table.data().size()) &&
                (answer.bytes.empty() ||
                 (answer.bytes.data() >= appendix.data() &&
                  answer.bytes.data() + answer.bytes.size() <= appendix.data() + appendix.size())),
            "an answer is within the memory");
    uint8_t sum = 0;
    for (const std::byte byte : answer.bytes)
      sum ^= static_cast<uint8_t>(byte);
    table.wait(position, std::chrono::milliseconds(0), rdmashared::Waiting::events, {});
    table.will_sleep_on_any(position, sum);
    table.any_bell(sum).load();
    table.deliver(position, rdmashared::Outcome::response, sum);
    table.wake();
    table.is_answered(position);
    table.drop({.position = position, .first = static_cast<uint32_t>(slot), .count = 1});
    require(rdmashared::words_for(answer.outcome) != nullptr, "each outcome has words");
  }
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Input input(bytes, size);
  try {
    if (input.get<uint8_t>() % 2 == 0)
      header(input);
    else
      answers(input);
  } catch (const Error &) {
  }
  return 0;
}

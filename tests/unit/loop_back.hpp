// SPDX-License-Identifier: MIT
// Lesson 23's callers without a network: a ring, its answers, and a sender that answers by itself.
#pragma once

#include "answer_table.hpp"
#include "caller_lanes.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/slot_ring.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <sys/eventfd.h>

#include <cstring>
#include <string>
#include <vector>

namespace rdmashared {

constexpr Shape loop_back_shape{.slots = 16, .slot_size = 64, .window = 16, .largest = 0};

class LoopBack {
public:
  explicit LoopBack(uint32_t slots = loop_back_shape.slots)
      : memory_(rdmacommon::SlotRing::make(shape(slots))) {
    answers.status().longest = slots;
    answers.status().is_up = 1;
  }

  Caller caller(Waiting waiting = Waiting::events) {
    std::vector<CallerLane> lanes;
    lanes.push_back({.ring = &ring, .answers = AnswerTable(ring), .worker = 1, .is_over = {}});
    return CallerLanes::caller(std::move(lanes), waiting);
  }

  struct Taken {
    rdmacommon::SlotRun slots;
    std::vector<std::byte> bytes;
  };

  // Takes what is ready, as the sender does.
  std::vector<Taken> take() {
    std::vector<Taken> all;
    for (rdmacommon::SlotRun run; (run = ring.take()).count > 0;)
      for (uint32_t at = 0; at < run.count;) {
        const uint64_t position = run.position + at;
        const rdmacommon::SlotMessage message = ring.message(run, at);
        rdmacommon::SlotHeader header;
        std::memcpy(&header, message.data.data(), sizeof header);
        const auto bytes =
            message.data.subspan(sizeof header, rdmacommon::from_wire(header).length);
        all.push_back(
            {.slots = {.position = position, .first = message.slot, .count = message.slots},
             .bytes = {bytes.begin(), bytes.end()}});
      }
    return all;
  }

  // The answer is the request. @return whether somebody collects it; if not, its slots have gone
  // back
  bool answer(const Taken &taken) {
    std::byte *into = answers.slots().data() +
                      size_t{taken.slots.first} * loop_back_shape.slot_size +
                      sizeof(rdmacommon::SlotHeader);
    if (!taken.bytes.empty())
      std::memcpy(into, taken.bytes.data(), taken.bytes.size());
    const bool is_wanted = answers.deliver(taken.slots.position, Outcome::response,
                                           static_cast<uint32_t>(taken.bytes.size()));
    if (!is_wanted)
      ring.give_back(taken.slots);
    return is_wanted;
  }

  // Whether its caller says that it sleeps: bit 3 of its word, behind the LaneStatus.
  bool says_asleep(const Taken &taken) const {
    const auto *controls = reinterpret_cast<const AnswerControl *>(ring.appendix().data() + 64);
    return (controls[taken.slots.first].word.load() & 8) != 0;
  }

private:
  static rdmacommon::RingShape shape(uint32_t slots) {
    Shape its = loop_back_shape;
    its.slots = slots;
    return {.slots = slots, .slot_size = its.slot_size, .appendix = AnswerTable::bytes_for(its)};
  }
  rdmacommon::File memory_;
  rdmacommon::File doorbell_{
      rdmacommon::check_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")};

public:
  rdmacommon::SlotRing ring{memory_.get(), doorbell_.get()};
  AnswerTable answers{ring, 0};
};

inline std::vector<std::byte> bytes_of(const std::string &text) {
  const auto *begin = reinterpret_cast<const std::byte *>(text.data());
  return {begin, begin + text.size()};
}

} // namespace rdmashared

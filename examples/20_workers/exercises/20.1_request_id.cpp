// SPDX-License-Identifier: MIT
// Exercise 20.1 (★★): the id of a request in one number.
// Wanted:   pack() puts an id into 64 bits: 16 bits for the worker, then 16 for the generation,
//           then 32 for the slot. find() takes such a number out of an answer, which comes from
//           another host and can have any value. It returns the id only if that request is under
//           way.
// Hints: ./lab hint 20.1
// Check: ./lab check 20.1

#include <rdmacommon/options.hpp>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>

using namespace rdmacommon;

namespace {

constexpr uint32_t workers = 4, slots_of_each = 4;

struct Id {
  uint16_t worker = 0, generation = 0;
  uint32_t slot = 0;
};

struct SlotState {
  bool is_under_way = false;
  uint16_t generation = 0;
};

using Slots = std::array<std::array<SlotState, slots_of_each>, workers>;

uint64_t pack(const Id &id) {
  // TODO: the others are lost.
  return id.slot;
}

std::optional<Id> find(uint64_t packed, const Slots &slots) {
  // TODO: every id is right, and of slot 0.
  static_cast<void>(packed), static_cast<void>(slots);
  return Id{};
}

void run(int argc, char **argv) {
  CommandLine line{"Looks for the requests of answers."};
  line.parse(argc, argv);
  Slots slots{};
  slots[1][2] = {.is_under_way = true, .generation = 65535};
  slots[3][0] = {.is_under_way = false, .generation = 7};
  const auto show = [&](const char *what, uint64_t packed) {
    const std::optional<Id> id = find(packed, slots);
    std::printf("%016" PRIx64 "  %-22s %s\n", packed, what,
                id && id->worker == 1 && id->slot == 2 ? "under way"
                : id                                   ? "wrong"
                                                       : "dropped");
  };
  show("under way", pack({.worker = 1, .generation = 65535, .slot = 2}));
  show("an older generation", pack({.worker = 1, .generation = 65534, .slot = 2}));
  show("answered already", pack({.worker = 3, .generation = 7, .slot = 0}));
  show("no such slot", pack({.worker = 1, .generation = 65535, .slot = 4}));
  show("no such worker", pack({.worker = 4, .generation = 65535, .slot = 2}));
  show("anything", ~uint64_t{0});
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

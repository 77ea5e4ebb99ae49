// SPDX-License-Identifier: MIT
// Exercise 18.1 (★★): how long a run is.
// Wanted:   run_at() says how many slots, from a position on, can be taken together: messages that
//           are ready, in this lap, at most `max_slots` slots, and not across the ring's end. The
//           first message goes whole, even if it is longer than `max_slots`.
// Hints: ./lab hint 18.1
// Check: ./lab check 18.1

#include <rdmacommon/options.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace rdmacommon;

namespace {

uint32_t run_at(const std::vector<SlotWord> &ring, uint64_t position, uint32_t max_slots) {
  // TODO: it takes one slot, whatever is in it.
  static_cast<void>(ring), static_cast<void>(position), static_cast<void>(max_slots);
  return 1;
}

void run(int argc, char **argv) {
  CommandLine line{"Looks for runs in a ring of eight slots."};
  line.parse(argc, argv);
  const auto ready = [](uint32_t count, uint32_t lap) {
    return SlotWord{.state = SlotState::ready, .count = count, .worker = 1, .lap = lap};
  };
  const SlotWord inside{.state = SlotState::free, .count = 0, .worker = 0, .lap = 2};
  const SlotWord claimed{.state = SlotState::claimed, .count = 1, .worker = 2, .lap = 2};
  // Position 16 is slot 0 in lap 2.
  const std::vector<SlotWord> ring = {ready(1, 2), ready(2, 2), inside,      claimed,
                                      ready(1, 2), ready(1, 1), ready(1, 2), ready(1, 2)};
  for (const uint64_t position : {16, 17, 19, 20, 21, 22})
    std::printf("from position %d: %u slots\n", static_cast<int>(position),
                run_at(ring, position, 255));
  std::printf("no more than 1: %u\n", run_at(ring, 16, 1));
  std::printf("no more than 2: %u\n", run_at(ring, 16, 2));
  std::printf("no more than 1, of a message of 2: %u\n", run_at(ring, 17, 1));
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

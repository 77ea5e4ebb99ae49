// SPDX-License-Identifier: MIT
// Exercise 21.1 (★): where a run ends.
// Wanted:   next_run() names the next run of a ring of 1024 slots. In a ring, the slots are used
//           again from the beginning: message n is in slot n % 1024. A run has at most `group`
//           slots, and never more than its eight bits can say. It ends where the ring ends, since a
//           WRITE has one destination.
// Hints: ./lab hint 21.1
// Check: ./lab check 21.1

#include <rdmacommon/immediate.hpp>
#include <rdmacommon/options.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr uint32_t slot_count = 1024;

// @param posted, put numbers of slots, which go on at the ring's end: slot number n is slot
//                    n % slot_count
Run next_run(uint32_t posted, uint32_t put, uint32_t group) {
  // TODO: it looks neither at the group, nor at the ring's end.
  static_cast<void>(group);
  return {.first = posted % slot_count, .count = put - posted};
}

void next_runs(int argc, char **argv) {
  CommandLine line{"Says which runs send what has been put."};
  line.parse(argc, argv);
  uint32_t posted = 0, put = 0;
  for (const uint32_t group : {64, 1000})
    for (const uint32_t more : {3, 150, 300, 500}) {
      put += more;
      std::printf("up to %4u slots, %3u more are put:", group, more);
      for (int runs = 0; posted != put && runs < 10; ++runs) {
        const Run run = next_run(posted, put, group);
        std::printf(" %u+%u", run.first, run.count);
        posted += run.count;
      }
      std::printf("\n");
    }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, next_runs);
}

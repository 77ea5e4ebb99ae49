// SPDX-License-Identifier: MIT
// Exercise 22.2 (★★): a number that begins again.
// Wanted:   a credit says in 24 bits how many runs have been taken since the connection began. The
//           number of runs has 64 bits here. taken_by() makes 64 bits of the 24, and refuses a
//           credit for more runs than were sent.
// Hints: ./lab hint 22.2
// Check: ./lab check 22.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/options.hpp>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

using namespace rdmacommon;

namespace {

// @param sent, taken runs since the connection began; `taken` as of the credit before
// @param credit      24 bits
// @return as of this credit
uint64_t taken_by(uint64_t sent, uint64_t taken, uint32_t credit) {
  // TODO: right only as long as 24 bits are enough.
  if (credit > sent || credit < taken)
    throw Error("the peer's credit", "it has taken more runs than were sent");
  return credit;
}

void only_24_bits(int argc, char **argv) {
  CommandLine line{"Takes credits, over and over."};
  line.parse(argc, argv);
  struct Credit {
    uint64_t sent;
    uint32_t says;
  };
  constexpr std::array<Credit, 8> credits{{{4, 2},
                                           {10, 10},
                                           {16'777'214, 16'777'210},
                                           {16'777'220, 16'777'215},
                                           {16'777'220, 1},
                                           {16'777'220, 5},
                                           {16'777'230, 7},
                                           {16'777'230, 9}}};
  uint64_t taken = 0;
  for (const Credit &credit : credits)
    try {
      taken = taken_by(credit.sent, taken, credit.says);
      std::printf("%" PRIu64 " runs sent, the credit says %u: %" PRIu64 " taken\n", credit.sent,
                  credit.says, taken);
    } catch (const Error &) {
      std::printf("%" PRIu64 " runs sent, the credit says %u: refused\n", credit.sent, credit.says);
    }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, only_24_bits);
}

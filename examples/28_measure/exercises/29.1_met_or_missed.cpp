// SPDX-License-Identifier: MIT
// Exercise 29.1 (★★): is the goal met?
// Wanted:   for each comparison, the median of the 15 ratios, their interval (from the fourth
//           smallest to the fourth largest ratio), and a verdict. A goal is a lower limit for the
//           ratio. It is "met" if the whole interval fulfils it, "missed" if no part of the
//           interval does, and "undecided" otherwise.
// Hints: ./lab hint 29.1
// Check: ./lab check 29.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

// Two runs, one right after the other, in the same unit.
struct Pair {
  double one, other;
};
using Pairs = std::array<Pair, 15>;

// Measured by ./lab bench on SoftRoCE, in an emulated machine whose host had other work to do.
// clang-format off
// Slots a second: 64 slots in one group, and 64 separate posts.
constexpr Pairs groups_and_posts = {{
    {177680, 5405}, {223825, 13900}, {384205, 13218}, {283566, 13790}, {684217, 25729},
    {474342, 25947}, {334862, 22325}, {355980, 13056}, {311750, 22316}, {601691, 22718},
    {497166, 12129}, {528866, 10688}, {637796, 21039}, {559628, 9153}, {537553, 23047}
}};

// Slots a second: 64 slots in one group, and ib_write_bw with messages of that size.
constexpr Pairs groups_and_perftest = {{
    {183188, 524672}, {249221, 361792}, {412930, 701248}, {320018, 557440}, {653582, 647616},
    {622436, 657024}, {612575, 665408}, {497186, 666688}, {544434, 349632}, {268344, 599680},
    {282135, 349760}, {354871, 260928}, {635280, 613760}, {324600, 643200}, {401000, 537856}
}};

// Microseconds for a request, 64 x 1: TCP, and the shared client.
constexpr Pairs tcp_and_shared = {{
    {460.9, 199.8}, {371.6, 216.0}, {468.2, 195.7}, {394.9, 191.6}, {321.9, 181.6},
    {259.5, 129.5}, {333.9, 126.3}, {318.8, 127.1}, {357.8, 76.4}, {328.8, 114.2}, {351.8, 140.9},
    {266.3, 138.9}, {289.8, 87.2}, {293.4, 115.5}, {292.0, 89.3}
}};
// clang-format on

struct Judged {
  double median, low, high;
  const char *verdict;
};

Judged judge(const Pairs &pairs, double at_least) {
  // TODO: one ratio of two sums. It compares runs that were not side by side.
  Pair sum{};
  for (const Pair &pair : pairs)
    sum = {sum.one + pair.one, sum.other + pair.other};
  const double ratio = sum.one / sum.other;
  return {ratio, ratio, ratio, ratio >= at_least ? "met" : "missed"};
}

void print(const char *what, const Pairs &pairs, double at_least) {
  const Judged found = judge(pairs, at_least);
  std::printf("%s: %.2f, interval %.2f to %.2f, at least %.2f: %s\n", what, found.median, found.low,
              found.high, at_least, found.verdict);
}

void met_or_missed(int argc, char **argv) {
  CommandLine line{"Judges three comparisons."};
  line.parse(argc, argv);
  print("one group / separate posts", groups_and_posts, 13);
  print("one group / ib_write_bw", groups_and_perftest, 0.97);
  print("TCP / shared client", tcp_and_shared, 3.5);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, met_or_missed);
}

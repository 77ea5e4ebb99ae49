// SPDX-License-Identifier: MIT
// Exercise 28.2 (★★): what the users have waited.
// Wanted:   one program measured a service, request after request, and noted how long the service
//           worked on each. In real use, a user comes every 100 us, also if the service is busy.
//           The service works on one request at a time, in order of arrival. Print how long each of
//           the ten users waits, from arrival to answer.
// Hints: ./lab hint 28.2
// Check: ./lab check 28.2

#include <rdmacommon/options.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

[[maybe_unused]] constexpr int every_us = 100;
using Waited = std::array<int, 10>; // us

// @param took how long the service has worked on each request, us
Waited waited(const Waited &took) {
  // TODO: as if each user came when the last one had his answer.
  return took;
}

void users(int argc, char **argv) {
  CommandLine line{"How long users have waited."};
  DeviceOptions options{line}; // as all exercises have them; no device is needed
  line.parse(argc, argv);
  Waited all = waited({10, 10, 450, 10, 10, 10, 10, 10, 10, 10});
  for (const int us : all)
    std::printf("%d ", us);
  std::ranges::sort(all);
  std::printf("\nhalf of them at most %d us, nine of ten at most %d us\n", all.at(4), all.at(8));
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, users);
}

// SPDX-License-Identifier: MIT
// Exercise 27.2 (★★★): a cache for 200 processes
// Wanted:   all six numbers, calculated from the constants, for this cache: 8 client hosts with 25
//           processes each, and one sender on each host. Three servers share the keys, so each key
//           is on one server. Even if all processes of a host ask the same server, no request waits
//           for a place in the window. And one process alone, with slow requests, leaves at least
//           one place to the others. (Then say what a client does when a request fails.
//           lessons/operating.md discusses it.)
// Hints: ./lab hint 27.2
// Check: ./lab check 27.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>

using namespace rdmacommon;

namespace {

[[maybe_unused]] constexpr uint32_t hosts = 8, processes = 25, in_flight = 16; // for a process
[[maybe_unused]] constexpr uint32_t request = 24, response = 1200;             // bytes at most
[[maybe_unused]] constexpr uint32_t slot_size = 64, slots = 4096;              // a ring has so many
// A NIC waits so many ms for an acknowledgement, and sends so many times, the first time included.
[[maybe_unused]] constexpr uint32_t ack_timeout = 537, tries = 7;

void sizes(int argc, char **argv) {
  CommandLine line{"Prints sizes for a cache."};
  line.parse(argc, argv);
  // TODO
  const uint32_t area_slots = 0; // SenderOptions::area_slots
  const uint32_t window = 0;     // SenderOptions::window
  const uint32_t clients = 0;    // clients of one server
  const uint32_t kib = 0;        // memory of one server for the clients' rings and copies, in KiB
  const uint32_t own = 0;        // queue pairs of a server if each process had its own connection
  const uint32_t dead_host = 0;  // ms until a sender knows that the host of a server has died
  std::printf("area_slots %u, window %u\n", area_slots, window);
  std::printf("%u clients, with %u KiB of rings and copies\n", clients, kib);
  std::printf("%u queue pairs of a server, in place of %u\n", clients, own);
  std::printf("a host that has died is noticed after %u ms\n", dead_host);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, sizes);
}

// SPDX-License-Identifier: MIT
// Exercise 27.1 (★★): how large must it be?
// Wanted:   all five numbers, calculated from the constants, for this client: 40 processes of four
//           threads. Each thread has eight requests under way. No thread waits for room.
// Hints: ./lab hint 27.1
// Check: ./lab check 27.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>

using namespace rdmacommon;

namespace {

[[maybe_unused]] constexpr uint32_t processes = 40, threads = 4, in_flight = 8;
// Bytes at most; RequestOptions::max_response is that of the response.
[[maybe_unused]] constexpr uint32_t request = 200, response = 1000;
[[maybe_unused]] constexpr uint32_t slot_size = 64, header = 24; // bytes

void sizes(int argc, char **argv) {
  CommandLine line{"Prints sizes for a shared client."};
  line.parse(argc, argv);
  // TODO
  const uint32_t slots_in_area = 0;     // for one request, with room for its response
  const uint32_t area_slots = 0;        // SenderOptions::area_slots
  const uint32_t slots_of_request = 0;  // in the ring to the server
  const uint32_t slots_of_response = 0; // in the ring from the server
  const uint32_t window = 0;            // SenderOptions::window
  std::printf("a request takes %u slots of its area, so area_slots is %u\n", slots_in_area,
              area_slots);
  std::printf("it takes %u slots of a ring, and its response %u\n", slots_of_request,
              slots_of_response);
  std::printf("window is %u\n", window);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, sizes);
}

// SPDX-License-Identifier: MIT
// Exercise 24.2 (★★): a client that lies.
// Wanted:   the server refuses both ranges that are not in its table, and ends with status 0.
// Hints: ./lab hint 24.2
// Check: ./lab check 24.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/messages.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <numeric>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

constexpr std::array<uint64_t, 8> table{1, 2, 4, 8, 16, 32, 64, 128};

// Names numbers of the table.
struct Range {
  static constexpr uint32_t type = 1;
  uint32_t first, count;
};
struct Sum {
  uint64_t value;
};

// TODO: a client can send any two numbers.
Sum sum_of(const Range &range) {
  const uint64_t *first = table.data() + range.first;
  return {std::accumulate(first, first + range.count, uint64_t{0})};
}

void serve(const CmOptions &options) {
  Dispatcher dispatcher;
  dispatcher.on<Range>(sum_of);
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .connect_within = options.timeout},
                dispatcher);
  std::printf("listening on rdma_cm port %u\n", server.port());
  server.run();
}

void ask_for(Caller &caller, const Range &range) {
  std::printf("%" PRIu32 " numbers from %" PRIu32 ": ", range.count, range.first);
  try {
    std::printf("%" PRIu64 "\n", ask<Sum>(caller, range).value);
  } catch (const RequestFailed &failure) {
    if (failure.outcome() != Outcome::refused)
      throw;
    std::printf("refused\n");
  }
}

void ask_all(const CmOptions &options) {
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();
  ask_for(caller, {.first = 6, .count = 2});
  ask_for(caller, {.first = 6, .count = 3});
  ask_for(caller, {.first = UINT32_MAX, .count = 2});
  ask_for(caller, {.first = 0, .count = 8});
}

void any_range(int argc, char **argv) {
  CommandLine line{"Asks for the sum of numbers that the server has, and of some that it has not."};
  CmOptions options{line, "the server; without it this is the server"};
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask_all(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, any_range);
}

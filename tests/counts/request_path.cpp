// SPDX-License-Identifier: MIT
// A request's way through its caller, the ring and its answer, for an exact count of instructions
// (test_counts.py): no network, no second thread and no system call, so each run takes the same
// number.
#include "loop_back.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

using namespace rdmashared;

namespace {

constexpr uint32_t max_in_flight = 64;

void answer_all(LoopBack &loop) {
  for (rdmacommon::SlotRun run; (run = loop.ring.take()).count > 0;)
    for (uint32_t at = 0; at < run.count; ++at) // of one slot each
      loop.answers.deliver(run.position + at, Outcome::response, 32);
}

void request_path(int argc, char **argv) {
  rdmacommon::CommandLine line{"Requests without a network, for callgrind."};
  uint32_t requests = 1000, in_flight = 1;
  line.add("--requests", requests, "how many [1000]", 1, 1'000'000);
  line.add("--in-flight", in_flight, "that wait for a response [1]", 1, max_in_flight);
  line.parse(argc, argv);
  LoopBack loop(max_in_flight);
  Caller caller = loop.caller();
  const std::array<std::byte, 32> bytes{};
  std::vector<Pending> pending;
  pending.reserve(in_flight);
  for (uint32_t sent = 0; sent < requests; sent += in_flight) {
    for (uint32_t i = 0; i < in_flight; ++i)
      pending.push_back(caller.request_async(bytes));
    answer_all(loop);
    for (Pending &one : pending)
      if (!one.wait(std::chrono::milliseconds(0), [](std::span<const std::byte>) {}))
        throw rdmacommon::Error("a response", "it is not there");
    pending.clear();
  }
#if defined(__clang__)
  std::printf("clang %d\n", __clang_major__);
#else
  std::printf("gcc %d\n", __GNUC__);
#endif
}

} // namespace

int main(int argc, char **argv) {
  return rdmacommon::run_main(argc, argv, request_path);
}

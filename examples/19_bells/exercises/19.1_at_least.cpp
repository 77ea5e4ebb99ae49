// SPDX-License-Identifier: MIT
// Exercise 19.1 (★★): wait until another process has counted far enough.
// Wanted:   wait_until() sleeps until the count is at least `wanted`. count_one() adds one, and
//           rings the bell only if the other process sleeps. No wake is missed.
// Hints: ./lab hint 19.1
// Check: ./lab check 19.1

#include "bell.hpp" // sleep_on() and ring(), from the lesson

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>

using namespace rdmacommon;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

struct Counter {
  std::atomic<uint32_t> count;
  std::atomic<uint32_t> sleeps; // the other process sleeps
  std::atomic<uint32_t> bell;
};

// @return whether it has rung
bool count_one(Counter &counter) {
  counter.count.fetch_add(1);
  return false; // TODO: it never rings
}

void wait_until(Counter &counter, uint32_t wanted, steady_clock::time_point deadline) {
  // TODO: it does not wait
  static_cast<void>(counter), static_cast<void>(wanted), static_cast<void>(deadline);
}

void run(int argc, char **argv) {
  CommandLine line{"Waits until another process has counted far enough."};
  seconds timeout{5};
  line.add("--timeout", timeout, "seconds for what the other process has to do");
  line.parse(argc, argv);
  const File file = make_shared_memory("counter", sizeof(Counter));
  const SharedMemory memory(file.get(), sizeof(Counter));
  Counter &counter = *new (memory.data()) Counter{};
  Child child([&](const Link &parent) {
    parent.receive(timeout); // now it waits
    wait_until(counter, 1001, deadline_in(timeout));
    parent.send(std::to_string(counter.count.load()));
  });
  uint32_t rings = 0;
  for (uint32_t i = 0; i < 1000; ++i)
    rings += count_one(counter);
  std::printf("1000 times, and nobody waits:  rung %u times\n", rings);
  child.link().send("wait");
  for (const auto end = deadline_in(timeout); counter.sleeps.load() == 0; sched_yield())
    if (child.link().can_receive() || steady_clock::now() >= end)
      throw Error("the child", "it does not sleep");
  std::printf("once, and the child waits:     rung %u time\n", count_one(counter) ? 1U : 0U);
  std::printf("the child has waited until:    %s\n", child.link().receive(timeout).c_str());
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

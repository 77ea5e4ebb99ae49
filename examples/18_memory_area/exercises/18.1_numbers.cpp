// SPDX-License-Identifier: MIT
// Exercise 18.1 (★★): a queue of numbers between two processes.
// Wanted:   the child puts 1000 numbers into the queue, which has four places, and the parent takes
//           them. No number is lost, and none comes twice.
// Hints: ./lab hint 18.1
// Check: ./lab check 18.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <new>
#include <optional>

using namespace rdmacommon;
using std::chrono::seconds;

namespace {

constexpr uint32_t places = 4;

struct Queue {
  std::atomic<uint32_t> written; // numbers since the beginning; only the child changes it
  std::atomic<uint32_t> read;    // numbers since the beginning; only the parent changes it
  std::array<uint32_t, places> numbers;
};

// @return false if the queue is full
bool try_put(Queue &queue, uint32_t number) {
  // TODO: it forgets the number.
  static_cast<void>(queue), static_cast<void>(number);
  return true;
}

// @return nothing if the queue is empty
std::optional<uint32_t> try_take(Queue &queue) {
  // TODO
  static_cast<void>(queue);
  return std::nullopt;
}

template <typename IsDone> void retry_until(IsDone is_done, seconds timeout) {
  for (const auto deadline = deadline_in(timeout); !is_done(); sched_yield())
    if (std::chrono::steady_clock::now() >= deadline)
      throw Error("the queue", "nothing happens");
}

void run(int argc, char **argv) {
  CommandLine line{"Sends numbers through a queue in shared memory."};
  seconds timeout{5};
  line.add("--timeout", timeout, "seconds for what the other process has to do");
  line.parse(argc, argv);
  const File file = make_shared_memory("queue", sizeof(Queue));
  const SharedMemory memory(file.get(), sizeof(Queue));
  Queue &queue = *new (memory.data()) Queue{};
  Child child([&](const Link &) {
    for (uint32_t number = 1; number <= 1000; ++number)
      retry_until([&] { return try_put(queue, number); }, timeout);
  });
  for (uint32_t expected = 1; expected <= 1000; ++expected) {
    std::optional<uint32_t> number;
    retry_until([&] { return (number = try_take(queue)).has_value(); }, timeout);
    if (*number != expected)
      throw Error("a number", "it is lost, or comes twice");
  }
  std::printf("1000 numbers through %u places; the queue is %s\n", places,
              try_take(queue) ? "not empty" : "empty");
  child.wait(timeout);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

// SPDX-License-Identifier: MIT
// Exercise 19.1 (★★): ring only if somebody sleeps for it.
// Wanted:   put() rings when the consumer sleeps for this very message, and at no other time. arm()
//           says what it sleeps for, and returns false if that is there already.
// Hints: ./lab hint 19.1
// Check: ./lab check 19.1

#include <rdmacommon/options.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>

using namespace rdmacommon;

namespace {

struct Mailbox {
  static constexpr uint64_t nothing = ~uint64_t{0};
  std::atomic<uint64_t> ready{0}; // messages
  std::atomic<uint64_t> awaited{nothing};
  uint64_t taken = 0; // the consumer's
  int rings = 0;

  void put() {
    // TODO: it rings for every message.
    ready.fetch_add(1);
    ++rings;
  }

  bool arm() {
    // TODO: it sleeps over what is there.
    awaited.store(taken);
    return true;
  }

  void take_all() {
    awaited.store(nothing);
    taken = ready.load();
  }
};

void run(int argc, char **argv) {
  CommandLine line{"Counts how often a doorbell rings."};
  line.parse(argc, argv);
  Mailbox box;
  for (int i = 0; i < 100; ++i)
    box.put();
  std::printf("100 messages for one who is awake: rung %d times\n", box.rings);
  std::printf("it may sleep: %s\n", box.arm() ? "yes" : "no");
  box.take_all();
  std::printf("it may sleep: %s\n", box.arm() ? "yes" : "no");
  for (int i = 0; i < 100; ++i)
    box.put();
  std::printf("100 messages for one who sleeps: rung %d times\n", box.rings);
  box.take_all();
  box.put();
  std::printf("one more, and it is awake: rung %d times\n", box.rings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

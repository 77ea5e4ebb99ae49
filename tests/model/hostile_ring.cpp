// SPDX-License-Identifier: MIT
// A hostile worker against a slot ring, by random actions, while the owner and honest workers go
// on: it writes to the words, the lengths and the header of its shared memory at any moment, also
// in the middle of a call of the others. No such ring keeps what it holds. But each call of the
// others returns, or throws Error, and they touch no memory outside of the ring. And a ring beside
// it, of the same owner, loses nothing.
//
// Usage: hostile_ring [SECONDS [SEED]]. Exit status 1 if a call hangs, or a message is lost.
#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

using namespace rdmacommon;
using namespace std::chrono_literals;
using Random = std::minstd_rand;

namespace {

constexpr RingShape shape{.slots = 16, .slot_size = 64, .quota = 12};
constexpr auto longest_call = 20s; // of a call that takes microseconds

std::atomic<bool> is_over = false, is_round_over = false;
std::atomic<int> ended = 0; // threads of this round

struct Ring {
  File memory = SlotRing::make(shape);
  File doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  SharedMemory raw{memory.get(), static_cast<size_t>(lseek(memory.get(), 0, SEEK_END))};
  RingHeader &header = *static_cast<RingHeader *>(raw.data());
  SlotControl *controls = reinterpret_cast<SlotControl *>(static_cast<std::byte *>(raw.data()) +
                                                          header.layout.controls);
  SlotRing owner{memory.get(), doorbell.get()}, worker{memory.get(), doorbell.get()};
};

// Says of a thread that it goes on. A call that hangs ends the program.
class Pulse {
public:
  explicit Pulse(const char *whose) : whose_(whose) {}
  void beat(const char *call) {
    call_ = call;
    ++beats_;
  }
  uint64_t beats() const { return beats_; }
  void check() {
    const uint64_t now = beats_;
    const auto time = std::chrono::steady_clock::now();
    if (now != seen_)
      changed_ = time;
    seen_ = now;
    if (time - changed_ < longest_call)
      return;
    std::printf("%s hangs in %s\n", whose_, call_.load());
    std::fflush(stdout);
    std::_Exit(1);
  }

private:
  const char *whose_;
  std::atomic<const char *> call_ = "nothing";
  std::atomic<uint64_t> beats_ = 0;
  uint64_t seen_ = 0;
  std::chrono::steady_clock::time_point changed_ = std::chrono::steady_clock::now();
};

// A word that nearly means something, at a position near the head.
uint64_t nearly_right(Random &random, uint64_t head) {
  return SlotWord{.state = static_cast<SlotState>(random() % 6),
                  .count = static_cast<uint32_t>(random() % 5),
                  .worker = static_cast<uint32_t>(random() % 4),
                  .lap = static_cast<uint32_t>(head / shape.slots + random() % 4 - 2) %
                         SlotWord::lap_limit}
      .packed();
}

void lie(Ring &ring, unsigned seed, Pulse &pulse) {
  Random random(seed);
  while (!is_round_over) {
    pulse.beat("a claim of its own");
    const uint64_t head = ring.header.head.load();
    SlotControl &control = ring.controls[random() % shape.slots];
    switch (random() % 8) {
    case 0:
    case 1:
    case 2:
      control.word = nearly_right(random, head);
      break;
    case 3:
      std::atomic_ref(control.length).store(static_cast<uint32_t>(random()) * 3);
      break;
    case 4:
      ring.header.head = head + random() % 9 - 4;
      break;
    case 5:
      ring.header.taken = head + random() % 40 - 20;
      break;
    case 6:
      ring.header.awaited = head;
      break;
    default: // a worker's own message in between, so that the ring also works at times
      try {
        if (auto claim = ring.worker.try_claim(1, 64))
          static_cast<void>(claim->publish());
      } catch (const Error &) {
      }
    }
    if (random() % 16 == 0)
      std::this_thread::yield();
  }
}

// A worker that does as it should, in the ring in which another lies.
void work(Ring &ring, unsigned seed, Pulse &pulse) {
  Random random(seed);
  while (!is_round_over)
    try {
      pulse.beat("claim");
      auto claim = ring.worker.claim(2, static_cast<uint32_t>(random() % 300), 1ms);
      std::memset(claim.data().data(), 1, claim.data().size());
      pulse.beat("publish");
      static_cast<void>(claim.publish());
    } catch (const Error &) {
    }
}

uint64_t own(Ring &ring, unsigned seed, Pulse &pulse) {
  Random random(seed);
  uint64_t taken = 0;
  std::deque<SlotRun> held;
  while (!is_round_over)
    try {
      pulse.beat("take");
      const SlotRun run = ring.owner.take(1 + random() % 16);
      if (run.count > 0)
        held.push_back(run);
      for (uint32_t at = 0; at < run.count; ++taken) {
        const SlotMessage message = ring.owner.message(run, at);
        if (message.slot + message.slots > shape.slots ||
            message.data.size() > size_t{message.slots} * shape.slot_size) {
          std::printf("a message lies outside of the ring\n");
          std::_Exit(1);
        }
      }
      if (!held.empty() && random() % 2 == 0) {
        const auto which = held.begin() + static_cast<long>(random() % held.size());
        pulse.beat("give_back");
        ring.owner.give_back(*which);
        held.erase(which);
      }
      pulse.beat("arm");
      ring.owner.arm();
      ring.owner.disarm();
      if (random() % 64 == 0) {
        pulse.beat("reclaim");
        ring.owner.reclaim(1 + random() % 3);
      }
    } catch (const Error &) {
    }
  return taken;
}

// The ring beside it: numbers, each one behind the other.
void count_up(Ring &ring, Pulse &pulse) {
  for (uint64_t number = 0; !is_over;) {
    pulse.beat("claim");
    auto claim = ring.worker.try_claim(1, sizeof number);
    if (!claim) {
      std::this_thread::yield();
      continue;
    }
    std::memcpy(claim->data().data(), &number, sizeof number);
    if (!claim->publish()) {
      std::printf("a claim of the other ring is gone\n");
      std::_Exit(1);
    }
    ++number;
  }
}

uint64_t check_numbers(Ring &ring, Pulse &pulse) {
  uint64_t next = 0;
  while (!is_over) {
    pulse.beat("take");
    const SlotRun run = ring.owner.take();
    for (uint32_t at = 0; at < run.count;) {
      uint64_t number;
      std::memcpy(&number, ring.owner.message(run, at).data.data(), sizeof number);
      if (number != next++) {
        std::printf("the other ring has lost a message\n");
        std::_Exit(1);
      }
    }
    if (run.count > 0)
      ring.owner.give_back(run);
    else
      std::this_thread::yield();
  }
  return next;
}

} // namespace

int main(int argc, char **argv) {
  const auto limit = std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 20);
  const auto seed = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : std::random_device{}();
  std::printf("seed %u\n", seed);
  std::fflush(stdout);
  Ring beside;
  Pulse worker("the worker"), owner("the owner"), counts("the other worker"),
      checks("the other owner"), liar("the liar");
  const auto check_all = [&] {
    for (Pulse *pulse : {&worker, &owner, &counts, &checks, &liar})
      pulse->check();
  };
  uint64_t taken = 0, right = 0;
  unsigned rounds = 0;
  {
    const std::jthread counting([&] { count_up(beside, counts); }),
        checking([&] { right = check_numbers(beside, checks); });
    // A damaged ring stays so. So each round has a new one.
    for (const auto end = std::chrono::steady_clock::now() + limit;
         std::chrono::steady_clock::now() < end; ++rounds) {
      Ring damaged;
      const unsigned round_seed = seed + 3 * rounds;
      is_round_over = false;
      ended = 0;
      const std::jthread honest([&] {
        work(damaged, round_seed + 1, worker);
        ++ended;
      }),
          owns([&] {
            taken += own(damaged, round_seed + 2, owner);
            ++ended;
          }),
          lies([&] {
            lie(damaged, round_seed, liar);
            ++ended;
          });
      for (int i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(10ms);
        check_all();
      }
      for (is_round_over = true; ended < 3; std::this_thread::sleep_for(1ms))
        check_all();
    }
    is_over = true;
  }
  std::printf("%u rounds: %" PRIu64 " calls of a worker and %" PRIu64 " of an owner, %" PRIu64
              " messages taken; %" PRIu64 " messages beside them, none lost\n",
              rounds, worker.beats(), owner.beats(), taken, right);
}

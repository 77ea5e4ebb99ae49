// SPDX-License-Identifier: MIT
// Threads put messages into a slot ring and one takes them out, some give up what they have
// claimed, and another gives back what was taken: for the thread sanitizer, which sees where an
// order between two threads is missing.
#include <rdmacommon/slot_ring.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

using namespace rdmacommon;

namespace {

// Gives runs back: some of them late, so that the ring goes round them, and some twice, as if
// somebody had died over them.
class Returner {
public:
  explicit Returner(SlotRing &ring) : ring_(ring), thread_([this] { work(); }) {}
  ~Returner() {
    leave({}, 0); // a run of no slots is the last
    thread_.join();
  }
  // @param part slots of its first messages
  void leave(const SlotRun &run, uint32_t part) {
    const std::lock_guard lock(mutex_);
    runs_.push_back({run, part});
    has_more_.notify_one();
  }

private:
  void work() {
    SlotRun late; // given back after the next one
    for (uint32_t number = 0;; ++number) {
      std::unique_lock lock(mutex_);
      has_more_.wait(lock, [this] { return !runs_.empty(); });
      const auto [run, part] = runs_.front();
      runs_.pop_front();
      lock.unlock();
      const bool is_late = number % 2 == 0 && late.count == 0 && run.count > 0 && run.count < 8;
      if (!is_late && late.count > 0)
        ring_.give_back(std::exchange(late, {}));
      if (run.count == 0)
        return;
      if (is_late) {
        late = run;
        continue;
      }
      if (number % 3 == 0) // a part, and then all
        ring_.give_back({.position = run.position, .first = run.first, .count = part});
      ring_.give_back(run);
      if (number % 3 == 1)
        ring_.give_back(run);
    }
  }

  SlotRing &ring_;
  std::mutex mutex_;
  std::condition_variable has_more_;
  std::deque<std::pair<SlotRun, uint32_t>> runs_;
  std::thread thread_;
};

// Ends the program, with the ring's state: after a failure that is rare, this is all there is to go
// by.
[[noreturn]] void fail(const char *why, int memory) {
  std::fprintf(stderr, "%s\n", why);
  const SharedMemory raw(memory, static_cast<size_t>(lseek(memory, 0, SEEK_END)));
  const auto *begin = static_cast<const std::byte *>(raw.data());
  const auto &header = *reinterpret_cast<const RingHeader *>(begin);
  const auto *controls = reinterpret_cast<const SlotControl *>(begin + header.layout.controls);
  std::fprintf(stderr, "head %" PRIu64 ", awaited %" PRIu64 ", taken %" PRIu64 "\n",
               header.head.load(), header.awaited.load(), header.taken.load());
  for (uint32_t slot = 0; slot < header.layout.shape.slots; ++slot) {
    const SlotWord word = SlotWord::unpacked(controls[slot].word.load());
    std::fprintf(stderr, "state %u, %u slots, worker %u, lap %u, claimed in lap %u\n",
                 static_cast<unsigned>(word.state), word.count, word.worker, word.lap,
                 controls[slot].lap);
  }
  std::_Exit(1); // the other threads still use the ring
}

} // namespace

int main() {
  constexpr uint32_t threads = 4, messages = 50'000;
  const File memory = SlotRing::make({.slots = 32, .slot_size = 64});
  const File doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  SlotRing ring(memory.get(), doorbell.get()); // one mapping: the sanitizer goes by addresses
  const auto work = [&ring](uint32_t worker) {
    bool has_dropped = false;
    for (uint32_t number = 0; number < messages;) {
      const uint32_t length = 4 + (number * 37 + worker * 11) % 200;
      SlotRing::Claim claim = ring.claim(worker, length, std::chrono::seconds(60));
      std::memset(claim.data().data(), static_cast<int>(number & 0xff), length);
      std::memcpy(claim.data().data(), &number, sizeof number);
      if (number % 7 == 3 && !std::exchange(has_dropped, true))
        continue; // dropped, and then once more
      has_dropped = false;
      if (!claim.publish())
        throw Error("publish", "the claim is lost");
      ++number;
    }
  };
  std::vector<std::thread> workers;
  for (uint32_t worker = 1; worker <= threads; ++worker)
    workers.emplace_back([&, worker] {
      try {
        work(worker);
      } catch (const Error &error) {
        fail(error.what(), memory.get());
      }
    });
  std::vector<uint32_t> next(threads + 1);
  Returner returner(ring);
  uint32_t runs = 0;
  for (uint64_t received = 0; received < uint64_t{threads} * messages;) {
    const SlotRun run = ring.take();
    uint32_t part = 0;
    for (uint32_t at = 0; at < run.count; ++received) {
      const SlotMessage message = ring.message(run, at);
      part = part == 0 ? at : part;
      uint32_t number;
      std::memcpy(&number, message.data.data(), sizeof number);
      if (number != next[message.worker]++) {
        std::fprintf(stderr, "worker %u: %u is not the next\n", message.worker, number);
        fail("the order is wrong", memory.get());
      }
      for (const std::byte byte : message.data.subspan(sizeof number))
        if (byte != static_cast<std::byte>(number & 0xff)) {
          std::fprintf(stderr, "worker %u: message %u is torn\n", message.worker, number);
          fail("a message is torn", memory.get());
        }
    }
    if (run.count > 0) {
      if (++runs % 2 == 0)
        returner.leave(run, part);
      if (runs % 2 != 0 || runs % 8 == 0) // sometimes both at the same time
        ring.give_back(run);
      continue;
    }
    if (ring.arm()) {
      pollfd bell{.fd = doorbell.get(), .events = POLLIN, .revents = 0};
      if (poll(&bell, 1, 50'000) == 0) // before the workers' limit, to know which of the two waits
        fail("the consumer: nothing has come for 50 s", memory.get());
    }
    ring.disarm();
  }
  for (std::thread &worker : workers)
    worker.join();
  std::printf("%u threads, %u messages each\n", threads, messages);
  return 0;
}

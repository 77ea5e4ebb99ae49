// SPDX-License-Identifier: MIT
// slot_stress: a slot ring with many processes, random lengths, and workers that are killed at
// random. Every message must arrive once, whole, and in its worker's order; of a worker that was
// killed, what it had published.
//
// Lesson:  lessons/20_ring_workers.md
// Run:     ./lab run 20_ring_workers --program slot_stress
//          ./lab run 20_ring_workers --program slot_stress -- --processes 64 --kills 1000

#include <rdmacommon/check.hpp>
#include <rdmacommon/checksum.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>

#include <sched.h>

#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace rdmacommon;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

struct Settings {
  RingShape shape{.slots = 256, .slot_size = 64};
  uint32_t processes = 16, messages = 50'000, longest = 400, kills = 20,
           run = SlotRing::longest_run;
  seconds timeout{20};
};

// What each worker has done, where the parent sees it after the worker's death.
struct Score {
  std::atomic<uint32_t> begun, published; // messages
};

// What a message begins with. Random bytes follow, the same for the same seed.
struct Head {
  uint32_t worker, number, length, checksum;
};

// [stress-worker]
void work(RingWorker &worker, uint32_t me, uint32_t messages, const Settings &settings,
          Score &score) {
  std::minstd_rand random(me + 1);
  for (uint32_t number = 0; number < messages; ++number) {
    const uint32_t length = sizeof(Head) + static_cast<uint32_t>(random()) % (settings.longest + 1);
    score.begun.store(number + 1);
    if (random() % 16 == 0)
      worker.claim(length, settings.timeout); // and changes its mind
    SlotRing::Claim claim = worker.claim(length, settings.timeout);
    const std::span<std::byte> body = claim.data().subspan(sizeof(Head));
    for (std::byte &byte : body)
      byte = static_cast<std::byte>(random() >> 8);
    if (random() % 64 == 0)
      sched_yield(); // others run, and somebody may kill us, between claim and publish
    const Head head{.worker = me, .number = number, .length = length, .checksum = checksum(body)};
    std::memcpy(claim.data().data(), &head, sizeof head);
    if (!claim.publish())
      throw Error("a message", "its slots were taken away");
    score.published.store(number + 1);
  }
}
// [stress-worker]

struct Crew {
  std::unique_ptr<Child> child;
  uint32_t messages = 0, received = 0;
  bool was_killed = false;
};

class Stress {
public:
  explicit Stress(const Settings &settings)
      : settings_(settings), host_(settings.shape),
        scores_file_(make_shared_memory("scores", places() * sizeof(Score))),
        scores_memory_(scores_file_.get(), places() * sizeof(Score)),
        scores_(static_cast<Score *>(scores_memory_.data())) {}

  void run() {
    for (uint32_t i = 0; i < settings_.processes; ++i)
      start(settings_.messages / settings_.processes);
    const auto begin = steady_clock::now();
    auto latest = begin;
    const uint32_t between = settings_.messages / (settings_.kills + 1) + 1;
    uint64_t received = 0;
    while (host_.joined() < crew_.size() || host_.workers() > 0) {
      if (!host_.wait(settings_.timeout))
        throw Error("the workers", "nothing has come from them in time");
      for (SlotRun run; (run = host_.ring().take(settings_.run)).count > 0;) {
        for (uint32_t at = 0; at < run.count; ++received)
          receive(host_.ring().message(run, at));
        host_.ring().give_back(run);
        if (killed_ < settings_.kills && received / between > killed_)
          kill_one();
      }
      latest = steady_clock::now();
    }
    check();
    const double ns = std::chrono::duration<double, std::nano>(latest - begin).count();
    std::printf("%u processes and %u kills: nothing is lost, doubled or torn\n",
                settings_.processes, killed_);
    const auto n = static_cast<double>(received);
    std::printf(
        "each message: %.3f ns, the consumer slept %.3f times, workers were woken %.3f times\n",
        ns / n, static_cast<double>(host_.sleeps()) / n,
        static_cast<double>(host_.ring().wakes()) / n);
  }

private:
  size_t places() const { return size_t{settings_.processes} + settings_.kills; }

  void start(uint32_t messages) {
    const auto me = static_cast<uint32_t>(crew_.size());
    auto child = start_worker(host_, settings_.timeout, [&](RingWorker &worker, const Link &) {
      work(worker, me, messages, settings_, scores_[me]);
    });
    crew_.push_back({.child = std::move(child), .messages = messages});
  }

  // [kill-one]
  // Its work is gone on with by another. The ring has not been told anything.
  void kill_one() {
    ++killed_;
    for (size_t tries = 0; tries < 4 * crew_.size(); ++tries) {
      Crew &victim = crew_[random_() % crew_.size()];
      const Score &score = scores_[&victim - crew_.data()];
      if (victim.was_killed || score.begun == 0 || score.published == victim.messages)
        continue;
      kill(victim.child->pid(), SIGKILL);
      victim.was_killed = victim.child->wait(settings_.timeout) != 0;
      const uint32_t left = victim.messages - score.published;
      victim.messages = score.published;
      if (victim.was_killed)
        start(left);
      return;
    }
  }
  // [kill-one]

  // [receive]
  void receive(const SlotMessage &message) {
    Head head;
    if (message.data.size() < sizeof head)
      throw Error("a message", "it is torn: too short");
    std::memcpy(&head, message.data.data(), sizeof head);
    if (head.worker >= crew_.size() || head.length != message.data.size() ||
        head.checksum != checksum(message.data.subspan(sizeof head)))
      throw Error("a message", "it is torn");
    Crew &worker = crew_[head.worker];
    if (head.number != worker.received)
      throw Error("a message",
                  head.number < worker.received ? "it is doubled" : "one is lost before it");
    ++worker.received;
  }
  // [receive]

  // [check]
  void check() {
    for (size_t i = 0; i < crew_.size(); ++i) {
      Crew &worker = crew_[i];
      const uint32_t begun = scores_[i].begun, published = scores_[i].published;
      if (!worker.was_killed && worker.child->wait(settings_.timeout) != 0)
        throw Error("a worker", "it has failed");
      // One that was killed may have published a message and not said so.
      if (worker.received < published || worker.received > begun ||
          (!worker.was_killed && worker.received != worker.messages))
        throw Error("worker " + std::to_string(i),
                    std::to_string(worker.received) + " messages of " + std::to_string(published));
    }
  }
  // [check]

  Settings settings_;
  RingHost host_;
  File scores_file_;
  SharedMemory scores_memory_;
  Score *scores_;
  std::vector<Crew> crew_;
  std::minstd_rand random_{17};
  uint32_t killed_ = 0;
};

void slot_stress(int argc, char **argv) {
  CommandLine line{
      "Sends messages through a slot ring, from many processes, some of which are killed."};
  Settings settings;
  line.add("--processes", settings.processes, "that send [16]", 1, 1024);
  line.add("--messages", settings.messages, "of all of them [50000]", 1, 1'000'000'000);
  line.add("--kills", settings.kills, "how many are killed, and replaced [20]", 0, 100'000);
  line.add("--longest", settings.longest, "random bytes in a message, at most [400]", 0, 1 << 20);
  line.add("--slots", settings.shape.slots, "of the ring, a power of two [256]", 1,
           SlotRing::max_slots);
  line.add("--slot-size", settings.shape.slot_size, "bytes, a multiple of 64 [64]", 64, 1 << 20);
  line.add("--run", settings.run, "slots that are taken at a time, at most [255]", 1,
           SlotRing::longest_run);
  line.add("--timeout", settings.timeout, "seconds in which something has to happen");
  line.parse(argc, argv);
  Stress(settings).run();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, slot_stress);
}

// SPDX-License-Identifier: MIT
// 19_ring_waiting: the consumer of a slot ring sleeps, and the worker whose message it waits for
// wakes it. Then: how long a message takes, and how seldom anybody sleeps.
//
// Lesson:  lessons/19_ring_waiting.md; the ring itself: common/src/slots.cpp
// Needs:   nothing: no RDMA device takes part
// Run:     ./lab run 19_ring_waiting

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace rdmacommon;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

constexpr uint32_t slot_size = 64;
constexpr seconds idle(60); // for a worker that waits for its parent's next word

struct Settings {
  uint32_t measured = 10'000;
  seconds timeout{5};
};

void publish(SlotRing::Claim claim) {
  std::memset(claim.data().data(), 0, claim.data().size());
  if (!claim.publish())
    throw Error("a message", "its slots were taken away");
}

// [two-messages]
// A worker. It publishes two messages, each when its parent, the consumer, says so, and tells how
// often it has rung for each.
void send_two(RingWorker &worker, const Link &consumer, seconds timeout) {
  SlotRing::Claim first = worker.claim(4 * slot_size, timeout);
  consumer.tell("claimed");

  consumer.hear(idle);
  publish(std::move(first));
  const uint64_t rings = worker.ring().rings();
  consumer.tell(std::to_string(rings));

  consumer.hear(idle);
  publish(worker.claim(slot_size, timeout));
  consumer.tell(std::to_string(worker.ring().rings() - rings));
}
// [two-messages]

// [asleep]
void asleep(RingHost &host, const Settings &settings) {
  const auto worker =
      start_worker(host, settings.timeout, [&](RingWorker &ring, const Link &consumer) {
        send_two(ring, consumer, settings.timeout);
      });
  while (host.joined() < 1)
    if (!host.wait(settings.timeout))
      throw Error("the worker", "it does not join");
  const Link &link = worker->link();
  link.hear(settings.timeout); // it has claimed its slots
  if (!host.ring().arm())
    throw Error("the ring", "something is ready already");
  // From here on, a worker sees a consumer that sleeps.
  link.tell("publish");
  const std::string first = link.hear(settings.timeout);
  pollfd bell{.fd = host.doorbell(), .events = POLLIN, .revents = 0};
  if (poll(&bell, 1, 1000) == 0)
    throw Error("the consumer", "it sleeps, a message is ready, and nobody has rung");
  link.tell("publish");
  const std::string second = link.hear(settings.timeout);
  host.ring().disarm();
  const SlotRun run = host.ring().take();
  std::printf("asleep: for the awaited message rung %s time, for the one behind it %s times; "
              "%u slots in one run\n",
              first.c_str(), second.c_str(), run.count);
  host.ring().give_back(run);
}
// [asleep]

// [measure]
void measure(RingHost &host, const Settings &settings) {
  std::printf("each message of 64 bytes:      time   consumer woken    workers woken\n");
  for (const uint32_t workers : {1U, 2U, 4U}) {
    const uint32_t before = host.joined();
    std::vector<std::unique_ptr<Child>> children;
    for (uint32_t i = 0; i < workers; ++i)
      children.push_back(
          start_worker(host, settings.timeout, [&](RingWorker &worker, const Link &consumer) {
            consumer.hear(idle); // until all have joined
            for (uint32_t number = 0; number < settings.measured; ++number)
              publish(worker.claim(slot_size, settings.timeout));
          }));
    while (host.joined() < before + workers)
      if (!host.wait(settings.timeout))
        throw Error("the workers", "they do not join");
    const uint64_t sleeps = host.sleeps(), wakes = host.ring().wakes();
    const auto begin = steady_clock::now();
    for (const auto &child : children)
      child->link().tell("begin");
    const uint64_t all = uint64_t{workers} * settings.measured;
    for (uint64_t received = 0; received < all;) {
      if (!host.wait(settings.timeout))
        throw Error("the workers", "nothing comes from them");
      for (SlotRun run; (run = host.ring().take()).count > 0; host.ring().give_back(run))
        received += run.count; // a message has one slot
    }
    const std::chrono::duration<double, std::nano> time = steady_clock::now() - begin;
    const auto each = static_cast<double>(all);
    std::printf("  %u worker%s %16.3f ns %10.3f times %10.3f times\n", workers,
                workers > 1 ? "s" : " ", time.count() / each,
                static_cast<double>(host.sleeps() - sleeps) / each,
                static_cast<double>(host.ring().wakes() - wakes) / each);
  }
}
// [measure]

void ring_waiting(int argc, char **argv) {
  CommandLine line{"A consumer that sleeps, and workers that wake it."};
  Settings settings;
  line.add("--measured", settings.measured, "messages of each worker that are timed [10000]", 1,
           10'000'000);
  line.add("--timeout", settings.timeout, "seconds for what another process has to do");
  line.parse(argc, argv);
  RingHost host({.slots = 64, .slot_size = slot_size});
  asleep(host, settings);
  measure(host, settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, ring_waiting);
}

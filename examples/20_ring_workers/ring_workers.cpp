// SPDX-License-Identifier: MIT
// 20_ring_workers: a worker of a slot ring dies in the middle of a message, and another worker is
// late. The slots of the dead worker come back; the late worker cannot publish any more.
//
// Lesson:  lessons/20_ring_workers.md; the ring itself: common/src/slots.cpp, and who joins:
//          common/src/ring_host.cpp
// Needs:   nothing: no RDMA device takes part
// Run:     ./lab run 20_ring_workers

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

using namespace rdmacommon;
using std::chrono::seconds;

namespace {

constexpr uint32_t slot_size = 64;
constexpr seconds timeout(5); // for a step; a worker gives up earlier, and says why
constexpr seconds claim_limit(1), idle(60);

bool publish(SlotRing::Claim claim) {
  std::memset(claim.data().data(), 0, claim.data().size());
  return claim.publish();
}

// [obey]
// A worker. It does what its parent says, one order after the other.
void obey(RingWorker &worker, const Link &parent) {
  std::optional<SlotRing::Claim> claim;
  for (;;) {
    const std::string order = parent.hear(idle);
    bool done = true;
    if (order == "send")
      done = publish(worker.claim(slot_size, claim_limit));
    else if (order == "claim")
      claim.emplace(worker.claim(4 * slot_size, claim_limit));
    else if (order == "publish")
      done = publish(std::move(*claim));
    parent.tell(done ? "done" : "refused");
  }
}

class Hand {
public:
  explicit Hand(RingHost &host) : child_(start_worker(host, timeout, obey)) {
    for (const uint32_t before = host.joined(); host.joined() == before;)
      if (!host.wait(timeout))
        throw Error("a worker", "it does not join");
  }
  std::string tell(const char *order) {
    child_->link().tell(order);
    return child_->link().hear(timeout);
  }
  pid_t pid() const { return child_->pid(); }

private:
  std::unique_ptr<Child> child_;
};
// [obey]

// [killed]
void killed(RingHost &host) {
  Hand victim(host), other(host);
  victim.tell("claim");
  other.tell("send");
  if (host.ring().take().count != 0)
    throw Error("the ring", "a message has overtaken another");
  kill(victim.pid(), SIGKILL);
  SlotRun run;
  while ((run = host.ring().take()).count == 0)
    if (!host.wait(timeout))
      throw Error("the consumer", "it waits for a worker that is dead");
  host.ring().give_back(run);
  std::printf("killed: the consumer passed over %u slots, and took the message behind them\n",
              run.first);
}
// [killed]

// [late]
void late(RingHost &host) {
  Hand sleeper(host), other(host);
  sleeper.tell("claim");
  // Never do this in real programs: that process lives. Workers get their numbers in order.
  host.ring().reclaim(host.joined() - 1);
  const auto send = [&](uint32_t messages) {
    for (uint32_t i = 0; i < messages; ++i) {
      other.tell("send");
      host.ring().give_back(host.ring().take());
    }
  };
  send(host.ring().shape().slots); // its slots are others' by now
  const std::string answer = sleeper.tell("publish");
  send(host.ring().shape().slots);
  std::printf("late:   a worker that was given up publishes: %s\n", answer.c_str());
}
// [late]

void ring_workers(int argc, char **argv) {
  CommandLine line{"A worker that dies in the middle of a message, and one that is late."};
  line.parse(argc, argv);
  RingHost host({.slots = 64, .slot_size = slot_size});
  killed(host);
  late(host);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, ring_workers);
}

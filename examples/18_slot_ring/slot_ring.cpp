// SPDX-License-Identifier: MIT
// 18_slot_ring: many processes put messages into slots of shared memory, and one takes them out, in
// runs. Nobody waits for a worker that is dead, and nobody makes a system call while there is
// something to do.
//
// Lesson:  lessons/18_slot_ring.md; the ring itself: common/src/slots.cpp, and who joins:
//          common/src/ring_host.cpp
// Needs:   nothing: no RDMA device takes part
// Run:     ./lab run 18_slot_ring
// By hand: slot_ring --name NAME --joiners 1    and, in other shells:
//          slot_ring --join NAME                a worker that was started on its own

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace rdmacommon;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

struct Settings {
  RingShape shape{.slots = 64, .slot_size = 64};
  uint32_t workers = 4, messages = 2000, joiners = 0, measured = 10'000;
  std::string name, join;
  seconds timeout{5};
};

// [send]
// A message is its number, and then bytes that are the number's last one: 1 to 5 slots.
void send(RingWorker &worker, uint32_t number, uint32_t length, seconds timeout) {
  SlotRing::Claim claim = worker.claim(length, timeout);
  std::memset(claim.data().data(), static_cast<int>(number & 0xff), length);
  std::memcpy(claim.data().data(), &number, sizeof number);
  if (!claim.publish())
    throw Error("a message", "its slots were taken away");
}

void send_all(RingWorker &worker, const Settings &settings) {
  for (uint32_t number = 0; number < settings.messages; ++number)
    send(worker, number, 4 + number * 37 % 300, settings.timeout);
}
// [send]

// [receive]
// What the workers have sent, checked: each message whole, and the next of its worker's.
class Receiver {
public:
  void take_all(SlotRing &ring) {
    for (SlotRun run; (run = ring.take()).count > 0; ring.give_back(run))
      for (uint32_t at = 0; at < run.count; ++received_)
        check(ring.message(run, at));
  }
  uint64_t received() const { return received_; }

private:
  void check(const SlotMessage &message) {
    uint32_t number;
    if (message.data.size() < sizeof number)
      throw Error("a message", "it is too short");
    std::memcpy(&number, message.data.data(), sizeof number);
    const auto is_right = [&](std::byte byte) {
      return byte == static_cast<std::byte>(number & 0xff);
    };
    if (number != next_[message.worker]++ ||
        !std::ranges::all_of(message.data.subspan(sizeof number), is_right))
      throw Error("a message", "it is torn, or one is lost or doubled");
  }

  std::map<uint32_t, uint32_t> next_; // by worker
  uint64_t received_ = 0;
};
// [receive]

// A child that has joined, and a link on which it is told what to do.
class Hand {
public:
  Hand(RingHost &host, const Settings &settings,
       void (*body)(RingWorker &, const Link &, const Settings &)) {
    auto [host_end, worker_end] = make_link();
    child_ = std::make_unique<Child>([&, end = &worker_end](const Link &parent) {
      RingWorker worker(std::move(*end), settings.timeout);
      body(worker, parent, settings);
    });
    host.invite(std::move(host_end));
  }

  std::string ask(const std::string &what, seconds timeout) {
    child_->link().tell(what);
    return child_->link().hear(timeout);
  }
  Child &child() { return *child_; }

private:
  std::unique_ptr<Child> child_;
};

void wait_for(RingHost &host, const Settings &settings, uint32_t joined) {
  while (host.joined() < joined)
    if (!host.wait(settings.timeout))
      throw Error("the workers", "they do not join");
}

// [all-together]
void all_together(RingHost &host, const Settings &settings) {
  std::vector<std::unique_ptr<Child>>
      strangers; // in place of a shell: it knows nothing but the name
  for (uint32_t i = 0; i < std::min(settings.workers, 1U); ++i)
    strangers.push_back(std::make_unique<Child>([&](const Link &) {
      const std::string messages = std::to_string(settings.messages);
      execl("/proc/self/exe", "slot_ring", "--join", settings.name.c_str(), "--messages",
            messages.c_str(), nullptr);
      throw_errno(errno, "execl");
    }));
  std::vector<Hand> children;
  for (uint32_t i = 1; i < settings.workers; ++i)
    children.emplace_back(
        host, settings,
        [](RingWorker &worker, const Link &, const Settings &all) { send_all(worker, all); });
  Receiver receiver;
  const uint32_t all = settings.workers + settings.joiners, before = host.joined();
  while (host.joined() - before < all || host.workers() > 0) {
    if (!host.wait(settings.joiners > 0 ? seconds(60) : settings.timeout))
      throw Error("the workers", "nothing comes from them");
    receiver.take_all(host.ring());
  }
  if (receiver.received() != uint64_t{all} * settings.messages)
    throw Error("the messages", "some are lost");
  std::printf("%u workers: %u messages of each, whole and in order\n", all, settings.messages);
}
// [all-together]

// [obey]
void obey(RingWorker &worker, const Link &parent, const Settings &) {
  std::optional<SlotRing::Claim> claim;
  for (uint32_t number = 0;;) {
    const std::string what = parent.hear(seconds(60));
    const uint64_t rings = worker.ring().rings();
    if (what == "send")
      send(worker, number++, 64, seconds(1));
    else if (what == "claim")
      claim.emplace(worker.claim(4 * 64, seconds(1)));
    else if (what == "publish" && !claim->publish())
      return parent.tell("refused");
    parent.tell("rang " + std::to_string(worker.ring().rings() - rings));
  }
}
// [obey]

// [asleep]
void asleep(RingHost &host, const Settings &settings) {
  Hand worker(host, settings, obey);
  wait_for(host, settings, host.joined() + 1);
  worker.ask("claim", settings.timeout);
  if (!host.ring().arm())
    throw Error("the ring", "something is ready already");
  const std::string first =
      worker.ask("publish", settings.timeout); // we sleep, as far as it can see
  pollfd bell{.fd = host.doorbell(), .events = POLLIN, .revents = 0};
  if (poll(&bell, 1, 1000) == 0)
    throw Error("the consumer", "it sleeps, a message is ready, and nobody has rung");
  const std::string second = worker.ask("send", settings.timeout);
  host.ring().disarm();
  const SlotRun run = host.ring().take();
  std::printf(
      "asleep: the message that was slept for %s, the one behind it %s; %u slots in one run\n",
      first.c_str(), second.c_str(), run.count);
  host.ring().give_back(run);
}
// [asleep]

// [killed]
void killed(RingHost &host, const Settings &settings) {
  Hand victim(host, settings, obey), other(host, settings, obey);
  wait_for(host, settings, host.joined() + 2);
  victim.ask("claim", settings.timeout);
  other.ask("send", settings.timeout);
  if (host.ring().take().count != 0)
    throw Error("the ring", "a message has overtaken another");
  kill(victim.child().pid(), SIGKILL);
  const auto begin = steady_clock::now();
  SlotRun run;
  while ((run = host.ring().take()).count == 0)
    if (!host.wait(milliseconds(1000)))
      throw Error("the consumer", "it waits for a worker that is dead");
  const auto held_up = steady_clock::now() - begin;
  host.ring().give_back(run);
  std::printf("killed: 4 slots came back, and the message behind them %s\n",
              held_up < milliseconds(100) ? "came in less than 100 ms" : "came late");
}
// [killed]

// [late]
void late(RingHost &host, const Settings &settings) {
  Hand sleeper(host, settings, obey), other(host, settings, obey);
  wait_for(host, settings, host.joined() + 2);
  sleeper.ask("claim", settings.timeout);
  // What nobody should do while that process lives. The numbers are given in order.
  host.ring().reclaim(host.joined() - 1);
  const auto send = [&](uint32_t messages) {
    for (uint32_t i = 0; i < messages; ++i) {
      other.ask("send", settings.timeout);
      host.ring().give_back(host.ring().take());
    }
  };
  send(host.ring().shape().slots); // its slots are others' by now
  const std::string answer = sleeper.ask("publish", settings.timeout);
  send(host.ring().shape().slots);
  std::printf("late:   a worker that was given up publishes: %s\n", answer.c_str());
}
// [late]

// [measure]
void measure(RingHost &host, const Settings &settings) {
  std::printf("each message of 64 bytes:      time   consumer woken    workers woken\n");
  for (const uint32_t workers : {1U, 2U, 4U}) {
    std::vector<Hand> children;
    for (uint32_t i = 0; i < workers; ++i)
      children.emplace_back(host, settings,
                            [](RingWorker &worker, const Link &parent, const Settings &all) {
                              parent.hear(seconds(60));
                              for (uint32_t number = 0; number < all.measured; ++number)
                                send(worker, number, 64, all.timeout);
                            });
    wait_for(host, settings, host.joined() + workers);
    const uint64_t sleeps = host.sleeps(), wakes = host.ring().wakes();
    const auto begin = steady_clock::now();
    for (Hand &child : children)
      child.child().link().tell("begin");
    Receiver receiver;
    const uint64_t all = uint64_t{workers} * settings.measured;
    while (receiver.received() < all) {
      if (!host.wait(settings.timeout))
        throw Error("the workers", "nothing comes from them");
      receiver.take_all(host.ring());
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

void slot_ring(int argc, char **argv) {
  CommandLine line{"Processes that send messages through slots in shared memory."};
  Settings settings;
  settings.name = "rdma-by-example.ring." + std::to_string(getpid());
  line.add("--workers", settings.workers, "processes that send [4]", 0, 256);
  line.add("--messages", settings.messages, "of each [2000]", 1, 100'000'000);
  line.add("--measured", settings.measured, "messages of each worker that are timed [10000]", 1,
           10'000'000);
  line.add("--slots", settings.shape.slots, "of the ring, a power of two [64]", 8,
           SlotRing::max_slots);
  line.add("--slot-size", settings.shape.slot_size, "bytes, a multiple of 64 [64]", 64, 1 << 20);
  line.add("--name", settings.name, "under which others find the ring [rdma-by-example.ring.PID]",
           100);
  line.add("--joiners", settings.joiners, "workers to wait for that are started by hand [0]", 0,
           256);
  line.add("--join", settings.join, "be a worker of the ring with this name", 100);
  line.add("--timeout", settings.timeout, "seconds for what another process has to do");
  line.parse(argc, argv);
  if (!settings.join.empty()) {
    RingWorker worker(connect_to_ring(settings.join), settings.timeout);
    return send_all(worker, settings);
  }
  RingHost host(settings.shape);
  std::printf("a ring of %u slots of %u bytes\n", settings.shape.slots, settings.shape.slot_size);
  asleep(host, settings);
  killed(host, settings);
  late(host, settings);
  host.listen(settings.name); // not before: the experiments want to be alone
  all_together(host, settings);
  measure(host, settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, slot_ring);
}

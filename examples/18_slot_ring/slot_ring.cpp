// SPDX-License-Identifier: MIT
// 18_slot_ring: many processes put messages into slots of shared memory, and one takes them out, in
// runs.
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

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace rdmacommon;
using std::chrono::seconds;

namespace {

struct Settings {
  RingShape shape{.slots = 64, .slot_size = 64};
  uint32_t workers = 4, messages = 2000, joiners = 0;
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
  std::vector<std::unique_ptr<Child>> children;
  for (uint32_t i = 1; i < settings.workers; ++i)
    children.push_back(start_worker(host, settings.timeout, [&](RingWorker &worker, const Link &) {
      send_all(worker, settings);
    }));
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

void slot_ring(int argc, char **argv) {
  CommandLine line{"Processes that send messages through slots in shared memory."};
  Settings settings;
  settings.name = "rdma-by-example.ring." + std::to_string(getpid());
  line.add("--workers", settings.workers, "processes that send [4]", 0, 256);
  line.add("--messages", settings.messages, "of each [2000]", 1, 100'000'000);
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
  host.listen(settings.name);
  all_together(host, settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, slot_ring);
}

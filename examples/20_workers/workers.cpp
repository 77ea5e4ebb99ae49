// SPDX-License-Identifier: MIT
// 20_workers: processes join a sender, leave it, and are killed in the middle of a request. One
// writes nonsense to its area. The others do not notice.
//
// Lesson:  lessons/20_workers.md
// Needs:   nothing: no RDMA device takes part
// Run:     ./lab run 20_workers

#include "work_area.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace rdmacommon;
using std::chrono::seconds;

namespace {

constexpr uint32_t max_workers = 4;
constexpr seconds idle(600); // a worker's wait for an order; the worker ends with its parent
seconds timeout(5);          // for what another process has to do

// [state]
struct Id { // identifies a request that is under way
  uint32_t number, slot, generation;
};

struct Request {
  Id id;
  std::string text;
};

// The sender's record of a slot. It is not in the area, where the worker could change it.
struct SlotState {
  bool is_under_way = false;
  uint32_t generation = 0; // requests in this slot so far, also of earlier workers
};

struct Member {
  uint32_t number; // the smallest free one, when it has joined
  Link link;
  File process; // a pidfd
  std::unique_ptr<MappedArea> area;
  uint32_t taken = 0; // submissions
  bool is_over = false;
};
// [state]

class Sender {
public:
  // [welcome]
  // @return the number of the worker
  uint32_t join(Link &&link) {
    std::vector<File> files;
    if (link.receive(timeout, files, 1) != "hello")
      throw Error("a process that wants to join", "it does not say hello");
    uint32_t number = 0;
    while (std::ranges::any_of(members_, [&](const Member &each) { return each.number == number; }))
      ++number;
    if (number == max_workers)
      throw Error("a process that wants to join", "there are as many as can be");
    const File file = make_shared_memory("area", sizeof(Area)); // zeros
    auto area = std::make_unique<MappedArea>(file);
    link.send("welcome", std::array{file.get()});
    members_.push_back({.number = number,
                        .link = std::move(link),
                        .process = std::move(files[0]),
                        .area = std::move(area)});
    return number;
  }
  // [welcome]

  void serve() {
    take();
    answer(false);
    forget_ended();
  }

  // [ended]
  // Their process has ended, or they have closed their link, or the sender drops them.
  void forget_ended() {
    for (Member &each : members_) {
      std::array<pollfd, 2> files{{{each.process.get(), POLLIN, 0}, {each.link.fd(), POLLIN, 0}}};
      if (poll(files.data(), files.size(), 0) > 0 || each.is_over) {
        each.is_over = true;
        for (SlotState &slot : slots_[each.number])
          slot.is_under_way = false;
      }
    }
    std::erase_if(members_, [](const Member &each) { return each.is_over; });
  }
  // [ended]

  // [take]
  // Begins with another worker each time, so that none is always the last.
  void take() {
    for (size_t i = 0; i < members_.size(); ++i)
      take_from(members_[(first_ + i) % members_.size()]);
    ++first_;
  }

  void take_from(Member &worker) {
    const Area &area = **worker.area;
    const uint32_t count = area.submitted.load(std::memory_order_acquire) - worker.taken;
    worker.is_over |= count > slot_count; // a correct worker cannot have so many
    for (uint32_t i = 0; i < count && !worker.is_over; ++i) {
      Submission copy; // the worker can change it at any time
      std::memcpy(&copy, &area.queue[worker.taken++ % slot_count], sizeof copy);
      if (copy.slot >= slot_count || copy.length > slot_size)
        continue;
      SlotState &slot = slots_[worker.number].at(copy.slot);
      if (slot.is_under_way)
        continue;
      slot.is_under_way = true;
      const Id id{.number = worker.number, .slot = copy.slot, .generation = ++slot.generation};
      under_way_.push_back({id, std::string(area.slots[copy.slot].data(), copy.length)});
    }
  }
  // [take]

  // [answer]
  // The answers arrive. Those to slow requests come later.
  void answer(bool also_slow) {
    std::erase_if(under_way_, [&](const Request &each) {
      if (!also_slow && each.text.starts_with("slow"))
        return false;
      answered(each.id, upper(each.text));
      return true;
    });
  }

  void answered(const Id &id, const std::string &response) {
    SlotState &slot = slots_[id.number][id.slot];
    if (!slot.is_under_way || slot.generation != id.generation) {
      ++late_; // the worker of that request has gone
      return;
    }
    slot.is_under_way = false;
    for (const Member &each : members_)
      if (each.number == id.number) {
        Area &area = **each.area;
        std::memcpy(area.slots[id.slot].data(), response.data(), response.size());
        area.answers[id.slot].length = static_cast<uint32_t>(response.size());
        area.answers[id.slot].outcome.store(1, std::memory_order_release);
      }
  }
  // [answer]

  size_t members() const { return members_.size(); }
  size_t under_way() const { return under_way_.size(); }
  uint32_t late() const { return late_; }

private:
  static std::string upper(std::string text) {
    for (char &letter : text)
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    return text;
  }

  std::vector<Member> members_;
  std::array<std::array<SlotState, slot_count>, max_workers> slots_; // by number
  std::vector<Request> under_way_;                                   // they are with a server
  uint32_t first_ = 0, late_ = 0;
};

// A worker process of the demonstration.
struct DemoWorker {
  std::pair<Link, Link> link = make_link(); // closed after the child has ended
  std::unique_ptr<Child> child;
  uint32_t number = 0;

  DemoWorker(Sender &sender, const std::function<void(Worker &, const Link &orders)> &body) {
    child = std::make_unique<Child>([&](const Link &orders) {
      link.first = Link(); // the sender's end
      Worker worker(link.second, timeout);
      body(worker, orders);
    });
    link.second = Link();
    number = sender.join(std::move(link.first));
  }

  // Tells it something, and works until it has answered.
  std::string ask(Sender &sender, const std::string &order) const {
    child->link().send(order);
    while (!child->link().can_receive()) {
      sender.serve();
      sched_yield();
    }
    return child->link().receive(timeout);
  }
};

// [killed]
void killed(Sender &sender, const DemoWorker &other, const std::string &point) {
  const DemoWorker victim(sender, [&](Worker &worker, const Link &orders) {
    orders.receive(idle);
    worker.die_at = point;
    worker.request("slow fig");
  });
  victim.child->link().send("begin");
  victim.child->wait(timeout); // it is dead
  sender.take();
  const size_t taken = sender.under_way();
  const std::string response = other.ask(sender, "pear");
  std::printf("worker %u, killed at \"%s\": %zu taken; worker %u has \"%s\"\n", victim.number,
              point.c_str(), taken, other.number, response.c_str());
}
// [killed]

// [late]
void late(Sender &sender) {
  const DemoWorker next(sender, [](Worker &worker, const Link &orders) {
    const uint32_t slot = worker.put("slow plum");
    worker.submit();
    orders.send("submitted");
    orders.send(worker.collect(slot));
  });
  next.child->link().receive(timeout);
  sender.take();
  sender.answer(true); // both "slow fig" and "slow plum"
  const std::string response = next.child->link().receive(timeout);
  if (response != "SLOW PLUM")
    throw Error("\"slow plum\"", "its response is " + response);
  std::printf("worker %u, a new one, has \"%s\"; %u late answer dropped\n", next.number,
              response.c_str(), sender.late());
  next.child->wait(timeout);
  sender.forget_ended();
}
// [late]

void lie(Worker &worker, const Link &orders) {
  std::minstd_rand random(20);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random()) % limit; };
  for (Area &area = worker.area();; orders.send("done")) {
    const uint32_t count = orders.receive(idle) == "last" ? 1000 : slot_count;
    for (Submission &each : area.queue) // some of them are possible
      each = {.slot = below(6), .length = below(48)};
    for (auto &slot : area.slots)
      slot.fill(static_cast<char>(below(256)));
    area.submitted.store(area.submitted.load() + count);
  }
}

void nonsense(Sender &sender, const DemoWorker &other) {
  const DemoWorker liar(sender, lie);
  const auto line = [&](const char *what, const std::string &response) {
    std::printf("worker %u %s: it is %s; worker %u has \"%s\"\n", liar.number, what,
                sender.members() == 2 ? "still there" : "dropped", other.number, response.c_str());
  };
  std::string response;
  for (uint32_t round = 0; round < 100; ++round) {
    liar.ask(sender, "once more");
    response = other.ask(sender, "quince");
  }
  line("writes nonsense 100 times", response);
  liar.ask(sender, "last");
  response = other.ask(sender, "cherry");
  line("submits 1000 at once", response);
}

void workers(int argc, char **argv) {
  CommandLine line{"Workers that join a sender, leave it, are killed, and write nonsense."};
  line.add("--timeout", timeout, "seconds for what another process has to do");
  line.parse(argc, argv);
  Sender sender;
  const DemoWorker other(sender, [](Worker &worker, const Link &orders) {
    for (;;) // each order is a request
      orders.send(worker.request(orders.receive(idle)));
  });
  for (const char *point : {"request written", "submission written", "submitted"})
    killed(sender, other, point);
  late(sender);
  nonsense(sender, other);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, workers);
}

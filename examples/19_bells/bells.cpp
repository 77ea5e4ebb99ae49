// SPDX-License-Identifier: MIT
// 19_bells: workers sleep until their answers are there, and the sender sleeps until there are
// requests. No wake is missed, and one call of the kernel wakes all workers that have answers.
//
// Lesson:  lessons/19_bells.md
// Needs:   nothing: no RDMA device takes part
// Run:     ./lab run 19_bells

#include "bell.hpp"
#include "square_sender.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

using namespace rdmacommon;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

class Worker {
public:
  Worker(uint32_t number, Area &area, const Board &board, int doorbell, seconds timeout)
      : bit_(1U << number), area_(area), board_(board), doorbell_(doorbell), timeout_(timeout) {}

  std::function<void()> before_sleep = [] {}; // for the demonstration
  uint32_t looks = 0;                         // times that it looks for an answer, before it sleeps

  // [submit]
  void submit(uint64_t number) {
    area_.is_answered.store(0, std::memory_order_relaxed);
    area_.number = number;
    area_.submitted.store(++submitted_); // say it
    if (board_.is_asleep.load() != 0) {  // then look
      check_errno(eventfd_write(doorbell_, 1), "eventfd_write");
      ++ring_count_;
    }
  }
  // [submit]

  // [wait]
  uint64_t wait() {
    const auto deadline = deadline_in(timeout_);
    for (uint32_t looked = 0; !is_answered(); ++looked) {
      if (looked < looks) {
        sched_yield();
        continue;
      }
      const uint32_t seen = board_.bell.load(std::memory_order_acquire);
      area_.sleeps.store(1); // say it
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (is_answered()) // then look
        break;
      before_sleep();
      if (!sleep_on(board_.bell, seen, bit_, deadline))
        throw Error("the worker", is_answered() ? "it has missed a wake" : "it has no answer");
    }
    area_.sleeps.store(0, std::memory_order_relaxed);
    return area_.number;
  }
  // [wait]

  bool is_answered() const { return area_.is_answered.load(std::memory_order_acquire) != 0; }

  uint32_t ring_count() const { return ring_count_; } // times that it rang the doorbell

private:
  const uint32_t bit_;
  Area &area_;
  const Board &board_;
  const int doorbell_;
  const seconds timeout_;
  uint32_t submitted_ = 0, ring_count_ = 0;
};

constexpr seconds idle(600); // a worker's wait for the next part; the worker ends with its parent
constexpr std::array<uint32_t, 2> some_looks{0, 100};

struct Settings {
  uint32_t requests = 1000;
  seconds timeout{5};
};

void check_square(uint64_t response, uint64_t number) {
  if (response != number * number)
    throw Error("the response", "it is " + std::to_string(response));
}

void work(Worker &worker, bool is_first, const Link &sender, const Settings &settings) {
  if (is_first) {
    worker.before_sleep = [&] {
      sender.send("about to sleep");
      sender.receive(idle); // it has answered
    };
    worker.submit(7);
    check_square(worker.wait(), 7);
    worker.before_sleep = [] {};
    sender.send("received");

    sender.receive(idle); // it is about to sleep
    worker.submit(8);
    sender.send(std::to_string(worker.ring_count()));
    check_square(worker.wait(), 8);
    sender.send("received");
  }
  sender.receive(idle); // the next part begins
  worker.submit(9);
  check_square(worker.wait(), 9);
  sender.send("received");

  for (const uint32_t looks : some_looks) {
    sender.receive(idle);
    worker.looks = looks;
    const uint32_t rings_before = worker.ring_count();
    for (uint32_t number = 0; number < settings.requests; ++number) {
      worker.submit(number);
      check_square(worker.wait(), number);
    }
    sender.send(std::to_string(worker.ring_count() - rings_before));
  }
}

// [between]
void between(Sender &sender, const Link &worker, const Settings &settings) {
  worker.receive(settings.timeout); // it is about to sleep
  sender.serve();
  worker.send("answered");
  worker.receive(2 * settings.timeout); // it has received the answer
  std::printf("an answer comes before the worker sleeps:  %u call to wake it, none missed\n",
              sender.call_count());

  std::string rings;
  sender.before_sleep = [&] {
    worker.send("submit");
    rings = worker.receive(settings.timeout);
  };
  sender.sleep({}, settings.timeout);
  sender.before_sleep = [] {};
  sender.serve();
  worker.receive(settings.timeout); // it has received the answer
  std::printf("a request comes before the sender sleeps:  %s ring to wake it, none missed\n",
              rings.c_str());
}
// [between]

using Children = std::vector<std::unique_ptr<Child>>;

void all_asleep(Sender &sender, const std::vector<Area *> &areas, const Children &workers,
                const Settings &settings) {
  for (const auto &worker : workers)
    worker->link().send("begin");
  const uint32_t calls = sender.call_count();
  const auto deadline = deadline_in(settings.timeout);
  while (std::ranges::any_of(areas, [](const Area *area) { return area->sleeps.load() == 0; })) {
    if (steady_clock::now() >= deadline)
      throw Error("the workers", "they do not sleep");
    sched_yield();
  }
  sender.serve();
  for (const auto &worker : workers)
    worker->link().receive(settings.timeout);
  std::printf("%u workers sleep:                           %u call to wake them\n", worker_count,
              sender.call_count() - calls);
}

void many(Sender &sender, const Children &workers, uint32_t looks, const Settings &settings) {
  const uint32_t calls = sender.call_count(), sleeps = sender.sleep_count();
  std::vector<const Link *> busy; // links to the workers that have not finished
  for (const auto &worker : workers) {
    worker->link().send("begin");
    busy.push_back(&worker->link());
  }
  uint64_t rings = 0;
  for (uint32_t looked = 0; !busy.empty();) {
    if (sender.serve()) {
      looked = 0;
    } else if (looked++ < looks) {
      sched_yield();
    } else {
      sender.sleep(busy, settings.timeout);
      std::erase_if(busy, [&](const Link *link) {
        if (!link->can_receive())
          return false;
        rings += std::stoul(link->receive(settings.timeout));
        return true;
      });
    }
  }
  const double all = worker_count * settings.requests;
  std::printf("after %3u looks:   %11.3f times %9.3f times  %9.3f times\n", looks,
              (sender.sleep_count() - sleeps) / all, static_cast<double>(rings) / all,
              (sender.call_count() - calls) / all);
}

void bells(int argc, char **argv) {
  CommandLine line{"Workers and a sender that sleep, and miss no wake."};
  Settings settings;
  line.add("--requests", settings.requests, "of each worker, in the last part [1000]", 1,
           1'000'000);
  line.add("--timeout", settings.timeout, "seconds for what another process has to do");
  line.parse(argc, argv);

  File file;

  const unique_board board = make_board(file);
  const File doorbell(check_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
  std::vector<std::unique_ptr<SharedMemory>> memories;
  std::vector<Area *> areas;
  Children workers;
  for (uint32_t i = 0; i < worker_count; ++i) {
    const File memory = make_shared_memory("area", sizeof(Area));
    memories.push_back(std::make_unique<SharedMemory>(memory.get(), sizeof(Area)));
    areas.push_back(new (memories.back()->data()) Area{});
    workers.push_back(std::make_unique<Child>([&, i](const Link &link) {
      const unique_board its_board = map_board(file, PROT_READ);
      Worker worker(i, *areas[i], *its_board, doorbell.get(), settings.timeout);
      work(worker, i == 0, link, settings);
    }));
  }
  Sender sender(areas, *board, doorbell.get());
  between(sender, workers[0]->link(), settings);
  all_asleep(sender, areas, workers, settings);
  std::printf("for each request:  the sender sleeps  a worker rings   the bell rings\n");
  for (const uint32_t looks : some_looks)
    many(sender, workers, looks, settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, bells);
}

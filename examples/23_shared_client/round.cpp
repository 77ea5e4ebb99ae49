// SPDX-License-Identifier: MIT
#include "round.hpp"

#include "console.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <algorithm>
#include <cinttypes>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

// Call it before the line that says "up": a script that reads this line may send a signal at once.
sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  check_errno(sigprocmask(SIG_BLOCK, &set, nullptr), "sigprocmask");
  return set;
}

void wait_for_signal(const Sender &sender, const sigset_t &set) {
  const timespec second{.tv_sec = 1, .tv_nsec = 0};
  while (sigtimedwait(&set, nullptr, &second) < 0)
    if (!sender.is_running()) // a ring was damaged, and it has said so
      throw Error("the sender", "it has ended");
}

// --report: the sender's figures, each so many seconds, until this object goes.
class Report {
public:
  Report(const Sender &sender, uint32_t seconds) {
    if (seconds > 0)
      thread_ = std::jthread([&sender, seconds](const std::stop_token &stop) {
        std::mutex mutex;
        std::condition_variable_any end;
        std::unique_lock lock(mutex);
        while (!end.wait_for(lock, stop, std::chrono::seconds(seconds),
                             [&] { return stop.stop_requested(); })) {
          std::printf("\n%s", sender.metrics().text().c_str());
          std::fflush(stdout);
        }
      });
  }

private:
  std::jthread thread_;
};

} // namespace

void print(const Score &score) {
  std::printf("%" PRIu64 " responses, and all of them right\n", score.right);
  if (score.lost + score.not_sent + score.other > 0)
    std::printf("failed: %" PRIu64 " lost, %" PRIu64 " not sent, %" PRIu64 " for other reasons\n",
                score.lost, score.not_sent, score.other);
}

Round::Round(const ClientOptions &settings, uint32_t largest)
    : settings_(settings), options_(settings.sender), load_(settings.load) {
  options_.largest_response = largest;
  load_.is_long = largest > 0;
  for (uint32_t i = 0; i < settings.processes; ++i)
    workers_.emplace_back(settings.waiting, load_, i);
}

void Round::run() {
  std::vector<Link> links;
  for (WorkerProcess &worker : workers_)
    links.push_back(worker.take_link());
  Sender sender(options_, std::move(links));
  for (const WorkerProcess &worker : workers_)
    worker.go_on();
  sender.wait_connected(settings_.timeout);
  for (const WorkerProcess &worker : workers_) // before time is measured
    worker.wait_until_joined(settings_.timeout);
  settings_.is_to_serve ? serve(sender) : measure(sender);
}

Score Round::run_workers(Sender &sender) {
  if (workers_.empty()) {
    Caller caller = sender.caller(settings_.waiting);
    return run_load(caller, load_, 0);
  }
  for (const WorkerProcess &worker : workers_)
    worker.go_on();
  Score score;
  for (const WorkerProcess &worker : workers_)
    score.add(worker.score(settings_.timeout + std::chrono::seconds(settings_.load.seconds + 600)));
  return score;
}

void Round::say_that_it_is_up(const Sender &sender) const {
  std::printf("%u connection%s up, responses come %s\n", sender.connections(),
              sender.connections() == 1 ? " is" : "s are",
              options_.largest_response > 0 ? "by a connection of their own" : "in the slots");
  std::fflush(stdout);
}

void Round::serve(const Sender &sender) {
  const sigset_t signals = block_signals();
  say_that_it_is_up(sender);
  const Report report(sender, settings_.report);
  wait_for_signal(sender, signals);
}

void Round::measure(Sender &sender) {
  say_that_it_is_up(sender);
  const Report report(sender, settings_.report);
  const Stopwatch watch;
  const double cpu_before = machine_cpu_ms();
  const Score score = run_workers(sender);
  const double took_ms = watch.elapsed_ms(), cpu_ms = machine_cpu_ms() - cpu_before;
  for (WorkerProcess &worker : workers_)
    worker.end(std::chrono::minutes(1));
  std::printf("%u processes of %u threads: ", std::max(settings_.processes, 1U),
              settings_.load.threads);
  print(score);
  const double each = 1000 / static_cast<double>(std::max<uint64_t>(score.right, 1));
  std::printf("a request every %.3f us, CPU %.3f us each\n", took_ms * each, cpu_ms * each);
  if (load_.is_timed)
    score.latencies.print();
  if (settings_.print_stats)
    print_counts("sender", sender.counts());
}

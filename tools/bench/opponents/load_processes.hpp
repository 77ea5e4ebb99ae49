// SPDX-License-Identifier: MIT
// Processes that send requests at the same time, each by means of its own. For the opponents of the
// shared client: own_connections.cpp, tcp_requests.cpp and memory_requests.cpp.
#pragma once

#include "latencies.hpp"
#include "service.hpp"
#include "timetable.hpp"

#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct ProcessLoad {
  uint32_t processes = 4;
  uint32_t requests = 200, in_flight = 1; // each process's
  uint32_t size = 32;                     // bytes of a request, and of its response
  uint32_t every_us = 0; // between two requests of a process; 0: as soon as there is room
  bool is_timed = false; // measures how long each request takes

  // Adds these options to the others, and parses all.
  void parse(rdmacommon::CommandLine &line, int argc, char **argv) {
    line.add("--processes", processes, "that send requests [4]", 1, 1000);
    line.add("--requests", requests, "of each process [200]", 1, 100'000'000);
    line.add("--in-flight", in_flight, "requests of a process that wait for a response [1]", 1, 64);
    line.add("--every", every_us,
             "microseconds between two requests of a process, by a timetable; 0: as soon as there "
             "is room [0]",
             0, 1'000'000);
    line.add("--latency", is_timed, "prints how long requests take");
    line.parse(argc, argv);
    check_timetable(line, every_us, in_flight);
  }
};

// One of the processes reports its progress here. Its requests have the numbers 0, 1 and so on. At
// most 64 are under way.
class Progress {
public:
  Progress(const rdmacommon::Link &parent, const ProcessLoad &load, uint32_t process)
      : parent_(parent), load_(load), process_(process) {}

  // Call it when the process can send. Waits for the other processes.
  void ready() {
    parent_.send("ready");
    parent_.receive(std::chrono::minutes(2));
    timetable_ = Timetable(load_.every_us, process_, load_.processes);
  }
  // Call it before each request. With a timetable, waits until the request is due.
  void sends(uint32_t number) {
    if (timetable_.is_used())
      began_.at(number % began_.size()) = timetable_.wait(number);
    else if (load_.is_timed)
      began_.at(number % began_.size()) = Clock::now();
  }
  void received(uint32_t number) {
    if (load_.is_timed)
      latencies_.add(Clock::now() - began_.at(number % began_.size()));
  }
  // Call it after the last response. Waits for the other processes: what follows, the teardown, is
  // not measured.
  void done() const {
    parent_.send({reinterpret_cast<const char *>(&latencies_), sizeof latencies_});
    parent_.receive(std::chrono::minutes(60));
  }

private:
  using Clock = std::chrono::steady_clock;
  const rdmacommon::Link &parent_;
  const ProcessLoad &load_; // if not timed: no look at the clock, which can be a system call
  const uint32_t process_;
  Timetable timetable_{0};
  std::array<Clock::time_point, 64> began_{}; // or were due
  Latencies latencies_;
};

// Runs `body` in each of the processes, all at the same time, and prints how often a request is
// done, which is not how long one takes: while one waits, others are done.
// @param body in process 0, 1 and so on; calls all functions of its Progress
inline void run_processes(const ProcessLoad &load,
                          const std::function<void(uint32_t process, Progress &progress)> &body) {
  using std::chrono::minutes;
  std::vector<std::unique_ptr<rdmacommon::Child>> children;
  for (uint32_t i = 0; i < load.processes; ++i)
    children.push_back(std::make_unique<rdmacommon::Child>([&, i](const rdmacommon::Link &parent) {
      Progress progress(parent, load, i);
      body(i, progress);
    }));
  for (const auto &child : children)
    child->link().receive(minutes(2));
  const rdmacommon::Stopwatch watch;
  const double cpu_before = rdmacommon::machine_cpu_ms();
  for (const auto &child : children)
    child->link().send("go");
  std::vector<std::string> said;
  for (const auto &child : children)
    said.push_back(child->link().receive(minutes(60)));
  const double each = 1000.0 / load.processes / load.requests;
  const double took_ms = watch.elapsed_ms(), cpu_ms = rdmacommon::machine_cpu_ms() - cpu_before;
  std::printf("%u processes, %u in flight: a request every %.3f us, CPU %.3f us each\n",
              load.processes, load.in_flight, took_ms * each, cpu_ms * each);
  if (load.is_timed) {
    Latencies all;
    for (const std::string &text : said) {
      Latencies one;
      if (text.size() != sizeof one)
        throw rdmacommon::Error("a process", "it does not say how long its requests took");
      std::memcpy(&one, text.data(), sizeof one);
      all.add(one);
    }
    all.print();
  }
  for (const auto &child : children)
    child->link().send("end");
  for (const auto &child : children)
    if (child->wait(minutes(1)) != 0)
      throw rdmacommon::Error("a process", "it has failed");
}

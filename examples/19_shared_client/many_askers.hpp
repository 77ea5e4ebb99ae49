// Processes that ask at the same time, each by what it has set up itself: what the shared client is compared with. For
// own_connections.cpp, tcp_requests.cpp and memory_requests.cpp.
#pragma once

#include "service.hpp"

#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace shared_client {

struct Askers {
  uint32_t processes = 4, requests = 200,
           in_flight = 1; // requests and in_flight are each process's
  uint32_t size = 32;     // bytes of a request, and of its response

  void add_to(rdmacommon::CommandLine &line) {
    line.add("--processes", processes, "that ask [4]", 1, 1000);
    line.add("--requests", requests, "of each process [200]", 1, 100'000'000);
    line.add("--in-flight", in_flight, "requests of a process that wait for a response [1]", 1, 64);
  }
};

// Runs `ask` in each of the processes, all at the same time, and prints how often a request is done, which is not how long one
// takes: while one waits, others are done.
// @param ask in process 0, 1 and so on: sets up what it needs, calls `ready`, which waits for the others, and asks
inline void
run_askers(const Askers &askers,
           const std::function<void(uint32_t process, const std::function<void()> &ready)> &ask) {
  using std::chrono::minutes;
  std::vector<std::unique_ptr<rdmacommon::Child>> children;
  for (uint32_t i = 0; i < askers.processes; ++i)
    children.push_back(std::make_unique<rdmacommon::Child>([&, i](const rdmacommon::Link &parent) {
      ask(i, [&] {
        parent.tell("ready");
        parent.hear(minutes(2)); // until all are
      });
      parent.tell("done");
    }));
  for (const auto &child : children)
    child->link().hear(minutes(2));
  const rdmacommon::Stopwatch watch;
  const double cpu_before = rdmacommon::machine_cpu_ms();
  for (const auto &child : children)
    child->link().tell("go");
  for (const auto &child : children)
    child->link().hear(minutes(60));
  const double each = 1000.0 / askers.processes / askers.requests;
  const double took_ms = watch.elapsed_ms(), cpu_ms = rdmacommon::machine_cpu_ms() - cpu_before;
  std::printf("%u processes, %u in flight: a request every %.3f us, CPU %.3f us each\n",
              askers.processes, askers.in_flight, took_ms * each, cpu_ms * each);
  for (const auto &child : children)
    if (child->wait(minutes(1)) != 0)
      throw rdmacommon::Error("a process", "it has failed", rdmacommon::Where::here());
}

} // namespace shared_client

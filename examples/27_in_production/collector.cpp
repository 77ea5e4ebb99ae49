// SPDX-License-Identifier: MIT
// A collector of measurements. Processes send samples and wait for nothing: a request without a
// response costs its process a copy and no sleep.
#include "log_line.hpp"

#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmashared/messages.hpp>
#include <rdmashared/sender.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

struct Sample {
  static constexpr uint32_t type = 1;
  uint64_t of; // number of the measurement
  double value;
};
struct Summarize {
  static constexpr uint32_t type = 2;
  uint64_t of;
};
struct Summary {
  static constexpr size_t oldest_size = 16; // bytes, for a client that does not know `largest`
  uint64_t count = 0;
  double sum = 0;
  double largest = 0;
};

// One thread runs all handlers, so they need no lock.
void serve(const CmOptions &options) {
  std::map<uint64_t, Summary> summaries;
  Dispatcher typed;
  typed.on<Sample>([&](const Sample &sample, Request &&) { // nobody waits for an answer
    Summary &summary = summaries[sample.of];
    summary.largest = summary.count == 0 ? sample.value : std::max(summary.largest, sample.value);
    summary.sum += sample.value;
    ++summary.count;
  });
  typed.on<Summarize>([&](const Summarize &what) { return summaries[what.of]; });
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .handler_threads = 0,
                 .connect_within = options.timeout,
                 .log = log_line},
                typed);
  std::printf("listening on rdma_cm port %u\n", server.port());
  std::fflush(stdout);
  serve_until_signal(server);
}

// Its own request comes after its samples: all of them go by the same connection, in order.
void work(Caller caller, uint32_t samples) {
  for (uint32_t i = 1; i <= samples; ++i)
    caller.post(to_request(Sample{.of = i % 2, .value = static_cast<double>(i)}));
  ask<Summary>(caller, Summarize{.of = 0});
}

void use(const CmOptions &options, uint32_t processes, uint32_t samples) {
  const std::string name = "collector-" + std::to_string(getpid());
  std::vector<std::unique_ptr<Child>> workers; // forked before there is a thread or a device
  for (uint32_t i = 0; i < processes; ++i)
    workers.push_back(std::make_unique<Child>([&](const Link &parent) {
      parent.receive(options.timeout); // there is a sender
      work(Caller::join(name, Waiting::adaptive, options.timeout), samples);
    }));
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .name = name,
                 .connect_within = options.timeout,
                 .log = log_line});
  sender.wait_connected(options.timeout);
  for (const auto &worker : workers)
    worker->link().send("go on");
  for (const auto &worker : workers)
    if (worker->wait(std::chrono::hours(24)) != 0) // each request of it has a limit
      throw Error("a process", "it has failed");
  Caller caller = sender.caller();
  for (const uint64_t of : {0, 1}) {
    const auto summary = ask<Summary>(caller, Summarize{.of = of});
    std::printf("measurement %u: %llu samples, mean %.1f, largest %.1f\n",
                static_cast<unsigned>(of), static_cast<unsigned long long>(summary.count),
                summary.sum / static_cast<double>(std::max<uint64_t>(summary.count, 1)),
                summary.largest);
  }
}

void run(int argc, char **argv) {
  CommandLine line{"Collects the samples of many processes."};
  CmOptions options{line, "the server; without it this is the server"};
  uint32_t processes = 3, samples = 1000;
  line.add("--processes", processes, "that send samples [3]", 1, 64);
  line.add("--samples", samples, "of each process [1000]", 1, 1'000'000);
  line.parse(argc, argv);
  options.is_server() ? serve(options) : use(options, processes, samples);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

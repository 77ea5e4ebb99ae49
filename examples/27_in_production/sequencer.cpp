// SPDX-License-Identifier: MIT
// A sequencer and its log: numbers that no two processes get, and entries in one order for all. The
// numbers have a fixed length and come in the request's slots; the log has any length.
#include "log_line.hpp"

#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmashared/messages.hpp>
#include <rdmashared/sender.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

struct Numbers { // the first of so many
  uint64_t first;
};
struct TakeNumbers {
  static constexpr uint32_t type = 1;
  uint64_t count;
};
struct Append { // an entry
  static constexpr uint32_t type = 2;
  uint64_t entry;
};
struct Position {
  uint64_t of_entry;
};
// The log from a position on has a service of its own, since its answer is no struct.
constexpr uint8_t read_log = 1;
constexpr uint32_t longest_log = 1 << 12; // bytes of an answer

// One thread runs all handlers, so they need no lock, and the order of the log is that in which
// requests came.
void serve(const CmOptions &options) {
  uint64_t next = 1;
  std::vector<uint64_t> log;
  Dispatcher typed;
  typed.on<TakeNumbers>(
      [&](const TakeNumbers &take) { return Numbers{std::exchange(next, next + take.count)}; });
  typed.on<Append>([&](const Append &append) {
    log.push_back(append.entry);
    return Position{log.size() - 1};
  });
  const auto answer = [&](Request &&request) {
    if (request.service() != read_log)
      return typed(std::move(request));
    const auto from = from_bytes<Position>(request.bytes()).of_entry;
    const auto bytes = std::as_bytes(std::span(log).subspan(std::min<uint64_t>(from, log.size())));
    request.reply(bytes.first(std::min(bytes.size(), request.response_space().size() / 8 * 8)));
  };
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .handler_threads = 0,
                 .connect_within = options.timeout,
                 .log = log_line},
                answer);
  std::printf("listening on rdma_cm port %u\n", server.port());
  std::fflush(stdout);
  serve_until_signal(server);
}

// Takes numbers and appends each to the log.
void work(Caller caller, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    ask<Position>(caller, Append{ask<Numbers>(caller, TakeNumbers{.count = 1}).first});
}

std::vector<uint64_t> whole_log(Caller &caller) {
  std::vector<uint64_t> log;
  for (;;) {
    const Position from{log.size()};
    const auto bytes =
        caller.request(std::as_bytes(std::span(&from, 1)),
                       {.max_response = RequestOptions::any_length, .service = read_log});
    if (bytes.empty())
      return log;
    log.resize(log.size() + bytes.size() / sizeof(uint64_t));
    std::memcpy(log.data() + from.of_entry, bytes.data(), bytes.size());
  }
}

void use(const CmOptions &options, uint32_t processes, uint32_t count) {
  const std::string name = "sequencer-" + std::to_string(getpid());
  std::vector<std::unique_ptr<Child>> workers; // forked before there is a thread or a device
  for (uint32_t i = 0; i < processes; ++i)
    workers.push_back(std::make_unique<Child>([&](const Link &parent) {
      parent.receive(options.timeout); // there is a sender
      work(Caller::join(name, Waiting::adaptive, options.timeout), count);
    }));
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .largest_response = longest_log,
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
  const auto log = whole_log(caller);
  const std::set<uint64_t> numbers(log.begin(), log.end());
  std::printf("%zu entries, %zu different numbers, the largest is %llu\n", log.size(),
              numbers.size(),
              static_cast<unsigned long long>(numbers.empty() ? 0 : *numbers.rbegin()));
}

void run(int argc, char **argv) {
  CommandLine line{"Numbers and a log for many processes."};
  CmOptions options{line, "the server; without it this is the server"};
  uint32_t processes = 3, count = 100;
  line.add("--processes", processes, "that take numbers [3]", 1, 64);
  line.add("--numbers", count, "that each process takes [100]", 1, 1'000'000);
  line.parse(argc, argv);
  options.is_server() ? serve(options) : use(options, processes, count);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

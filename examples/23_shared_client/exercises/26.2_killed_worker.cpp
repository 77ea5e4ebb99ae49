// SPDX-License-Identifier: MIT
// Exercise 26.2 (★★): a worker that is killed.
// Wanted:   a second worker goes on where the first one was killed, until all requests are done. A
//           worker that fails by itself is not started again.
// Hints: ./lab hint 26.2
// Check: ./lab check 26.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmashared/caller.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

constexpr uint32_t requests = 8;

void serve(const CmOptions &options) {
  std::atomic<uint32_t> carried_out = 0;
  const auto answer = [&](Request &&request) {
    ++carried_out;
    request.reply(0);
  };
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .connect_within = options.timeout},
                answer);
  std::printf("listening on rdma_cm port %u\n", server.port());
  server.run();
  std::printf("%u requests were carried out\n", carried_out.load());
}

// `done` lies in memory that outlives the worker. The first worker is killed between an answer and
// the note of it.
void work(const std::string &name, std::atomic<uint32_t> &done, bool is_first) {
  Caller caller = Caller::join(name);
  while (done < requests) {
    caller.request({});
    if (is_first && done == 3)
      std::raise(SIGKILL);
    ++done;
  }
}

// TODO: nothing comes after the first worker.
void run_workers(const std::string &name, std::atomic<uint32_t> &done,
                 std::chrono::milliseconds limit) {
  Child worker([&](const Link &) { work(name, done, true); });
  std::printf("worker 1 ended with status %d\n", worker.wait(limit));
}

void ask(const CmOptions &options) {
  const std::string name = "killed-worker-" + std::to_string(getpid());
  constexpr size_t length = 4096;
  const SharedMemory memory(make_shared_memory("done", length).get(), length);
  auto &done = *new (memory.data()) std::atomic<uint32_t>(0);
  // The sender has a process of its own. This one forks again later, so it stays without threads
  // and without RDMA (lesson 15).
  Child owner([&](const Link &parent) {
    Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                   .name = name,
                   .connect_within = options.timeout});
    sender.wait_connected(options.timeout);
    parent.send("up");
    parent.receive(options.timeout); // the workers have ended
  });
  owner.link().receive(options.timeout);
  run_workers(name, done, options.timeout);
  std::printf("%u requests are done\n", done.load());
  owner.link().send("the workers have ended");
  if (owner.wait(options.timeout) != 0)
    throw Error("the sender", "it has failed");
}

void killed_worker(int argc, char **argv) {
  CommandLine line{"Asks by workers, one of which is killed."};
  CmOptions options{line, "the server; without it this is the server"};
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, killed_worker);
}

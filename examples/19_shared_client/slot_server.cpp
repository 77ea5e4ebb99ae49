// 19_shared_client, the server: answers the requests of many shared clients, which come in groups, by a pool of threads.
//
// Lesson:  lessons/19_shared_client.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 19_shared_client
// By hand: slot_server --clients 0                   serves until SIGTERM
//          shared_client --host ADDRESS              the client

#include "server.hpp"
#include "service.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <string>

using namespace rdmacommon;
using namespace shared_client;

namespace {

// Before there is any thread: they inherit what is blocked, and so the signals come here only.
File block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  check_errno(sigprocmask(SIG_BLOCK, &set, nullptr), "sigprocmask");
  return File(check_errno(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"));
}

void slot_server(int argc, char **argv) {
  CommandLine line{"Answers shared clients' requests. SIGTERM lets them finish."};
  CmOptions where{line, "the address to listen on [all of them]"};
  ServerOptions options{.clients = 2};
  std::string waiting = "events";
  uint32_t megabytes = 256, total_megabytes = 1024;
  std::chrono::seconds grace{5};
  bool print_stats = false;
  line.add("--clients", options.clients,
           "end after so many connections; 0: serve until SIGTERM [2]", 0, 1'000'000);
  line.add("--at-once", options.connections, "connections at a time [64]", 1, 4096);
  line.add("--most-slots", options.slots, "of one connection [65536]", 1, 1 << 24);
  line.add("--most-memory", megabytes, "MiB for one connection [256]", 1, 1 << 20);
  line.add("--total-memory", total_megabytes, "MiB for all connections [1024]", 1, 1 << 20);
  line.add("--window", options.session.window,
           "requests of a connection that may be without an answer [4096]", 1, 1 << 16);
  line.add("--workers", options.workers,
           "threads of the pool; 0: none, for requests that take no time [1]", 0, 256);
  line.add("--group", options.session.most,
           "most slots in a group of answers; 1: each by itself [255]", 1, 255);
  line.add("--waiting", waiting, "how it waits: poll, events or spin [events]", waiting_names);
  line.add("--grace", grace, "how long clients may take to finish after SIGTERM");
  line.add("--stats", print_stats, "prints at the end what it has done");
  line.parse(argc, argv);
  options.memory = uint64_t{megabytes} << 20;
  options.total_memory = uint64_t{total_megabytes} << 20;
  options.waiting = waiting_of(waiting);
  options.step = where.timeout;
  options.grace = grace;

  const File signals = block_signals();
  Server server(options, where, serve);
  server.run(signals.get());
  std::printf("served %u connections, dropped %u, rejected %u\n", server.served(), server.dropped(),
              server.rejected());
  if (print_stats)
    server.stats().print("server");
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, slot_server);
}

// SPDX-License-Identifier: MIT
// 23_shared_client, the server: answers the requests of many shared clients, which come in groups,
// by a pool of threads.
//
// Lesson:  lessons/23_shared_client.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 23_shared_client
// By hand: slot_server --clients 0                   serves until SIGTERM
//          shared_client --host ADDRESS              the client

#include "console.hpp"
#include "service.hpp"

#include <rdmacommon/options.hpp>
#include <rdmashared/server.hpp>

#include <cstdio>
#include <string>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

void slot_server(int argc, char **argv) {
  CommandLine line{"Answers shared clients' requests. SIGTERM lets them finish."};
  CmOptions cm{line, "the address to listen on [all of them]"};
  ServerOptions options{.exit_after = 2};
  std::string waiting = "adaptive";
  uint32_t megabytes = 256, total_megabytes = 1024;
  std::chrono::seconds grace{5};
  bool print_stats = false;
  line.add("--clients", options.exit_after,
           "end after so many connections; 0: serve until SIGTERM [2]", 0, 1'000'000);
  line.add("--at-once", options.max_clients, "connections at a time [64]", 1, 4096);
  line.add("--max-slots", options.slots, "of one connection [65536]", 1, 1 << 24);
  line.add("--max-memory", megabytes, "MiB for one connection [256]", 1, 1 << 20);
  line.add("--total-memory", total_megabytes, "MiB for all connections [1024]", 1, 1 << 20);
  line.add("--window", options.window,
           "requests of a connection that may be without an answer [4096]", 1, 1 << 16);
  line.add("--threads", options.threads, "threads that have the connections [1]", 1, 256);
  line.add("--handler-threads", options.handler_threads,
           "threads of the pool; 0: none, for requests that take no time [1]", 0, 256);
  line.add("--group", options.group, "most slots in a group of answers; 1: each by itself [64]", 1,
           255);
  line.add("--waiting", waiting, "how it waits: poll, events or adaptive [adaptive]",
           waiting_names);
  line.add("--grace", grace, "how long clients may take to finish after SIGTERM");
  line.add("--stats", print_stats, "prints at the end what it has done");
  line.parse(argc, argv);
  options.memory = uint64_t{megabytes} << 20;
  options.total_memory = uint64_t{total_megabytes} << 20;
  options.waiting = waiting_of(waiting);
  options.host = cm.host;
  options.port = cm.cm_port;
  options.connect_within = cm.timeout;
  options.grace = grace;
  options.log = log_line;

  Server server(options, serve);
  std::printf("listening on rdma_cm port %u\n", server.port());
  serve_until_signal(server);
  std::printf("served %u connections, dropped %u, rejected %u\n", server.served(), server.dropped(),
              server.rejected());
  if (print_stats)
    print_counts("server", server.counts());
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, slot_server);
}

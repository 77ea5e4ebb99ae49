// SPDX-License-Identifier: MIT
// A server, a sender with worker processes, or one worker, of the shared client with an area for
// each process. Every response is checked. test_areas.py starts it, and ends it at bad moments.
#include "load.hpp"
#include "service.hpp"

#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmashared/caller.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

void log_line(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

// Says when a long handler begins, so that the test knows that its request has come.
size_t serve_and_say(std::span<const std::byte> request, std::span<std::byte> response) {
  ServiceHeader header{};
  if (request.size() >= sizeof header)
    std::memcpy(&header, request.data(), sizeof header);
  if (std::chrono::microseconds(ntohl(header.microseconds)) == longest_work) {
    std::printf("began\n");
    std::fflush(stdout);
  }
  return serve(request, response);
}

void serve_clients(const CmOptions &where, uint32_t pool) {
  Server server({.host = where.host, .port = where.cm_port, .workers = pool, .log = log_line},
                serve_and_say);
  std::printf("listening on rdma_cm port %u\n", server.port());
  std::fflush(stdout);
  serve_until_signal(server);
  std::printf("served %u, dropped %u, rejected %u, RNR %" PRIu64 "\n", server.served(),
              server.dropped(), server.rejected(), server.counts().rnr);
}

void print(const Score &score) {
  std::printf("%" PRIu64 " right, %" PRIu64 " lost, %" PRIu64 " not sent, %" PRIu64 " other\n",
              score.right, score.lost, score.not_sent, score.other);
}

// Until its input ends.
void send_for_others(SenderOptions options) {
  Sender sender(options);
  sender.wait_until_up(std::chrono::seconds(60));
  std::printf("up\n");
  std::fflush(stdout);
  while (std::getchar() != EOF)
    ;
}

void work(const std::string &name, const Load &load, Waiting waiting, bool waits) {
  Caller caller = Caller::join(name, waiting);
  if (waits && !caller.wait_connected(load.limit))
    throw Error("the sender", "it does not connect in time");
  std::printf("joined\n");
  std::fflush(stdout);
  print(run_load(caller, load, static_cast<uint32_t>(getpid())));
}

void area_load(int argc, char **argv) {
  CommandLine line{"One part of a shared client: the server, the sender, or a worker."};
  const CmOptions where{line, "the address to listen on, or the server"};
  std::string role, name, waiting = "adaptive";
  SenderOptions sender{.log = log_line};
  std::chrono::seconds silence{5};
  bool waits = false;
  uint32_t pool = 1;
  Load load;
  line.add("--role", role, "server, sender or worker", {"server", "sender", "worker"});
  line.add("--name", name, "of the sender", 100);
  line.add("--waiting", waiting, "how all wait [adaptive]", {"adaptive", "poll", "events"});
  line.add("--pool", pool, "threads for handlers; 0: inline [1]", 0, 64);
  line.add("--connections", sender.connections, "of the sender [1]", 1, 8);
  line.add("--sender-threads", sender.threads, "[1]", 1, 8);
  line.add("--slots", sender.slots, "of a ring [4096]", 8, 1 << 20);
  line.add("--slot-size", sender.slot_size, "bytes [64]", 32, 1 << 20);
  line.add("--area-slots", sender.area_slots, "of a worker [1024]", 1, 1 << 20);
  line.add("--window", sender.window, "requests without a response [1024]", 1, 1 << 16);
  line.add("--group", sender.group, "most slots in a group [64]", 1, 255);
  line.add("--largest", sender.largest_response, "bytes of a long response [0]", 0, 1 << 26);
  line.add("--silence", silence, "how long a server may say nothing");
  line.add("--connected", waits, "the worker waits for a connection first");
  line.add("--threads", load.threads, "of a worker [2]", 1, 500);
  line.add("--requests", load.requests, "of each thread [200]", 1, 100'000'000);
  line.add("--seconds", load.seconds, "for so long instead [0]", 0, 3600);
  line.add("--in-flight", load.in_flight, "requests of a thread [1]", 1, 1000);
  line.add("--size", load.size, "bytes of a request [32]", 0, 1 << 26);
  line.add("--response-size", load.response_size, "bytes of a response [32]", 0, 1 << 26);
  line.add("--microseconds", load.microseconds, "that a handler takes [0]", 0, 60'000'000);
  line.add("--mixed", load.is_mixed, "random sizes, and all ways to ask");
  line.add("--long", load.is_long, "responses of any length");
  line.add("--patient", load.is_patient, "goes on after a request that failed");
  line.parse(argc, argv);
  const Waiting how = waiting == "poll"     ? Waiting::poll
                      : waiting == "events" ? Waiting::events
                                            : Waiting::adaptive;
  load.limit = where.timeout;
  if (role == "server")
    return serve_clients(where, pool);
  if (role == "worker")
    return work(name, load, how, waits);
  sender.servers = {{.host = where.host, .port = where.cm_port}};
  sender.name = name;
  sender.silence = silence;
  sender.waiting = how;
  send_for_others(sender);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, area_load);
}

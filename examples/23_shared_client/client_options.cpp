// SPDX-License-Identifier: MIT
#include "client_options.hpp"

#include "console.hpp"
#include "timetable.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <CLI/App.hpp>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <system_error>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

// "ADDRESS:PORT,ADDRESS:PORT"
std::vector<ServerAddress> servers_in(const std::string &list, uint16_t port) {
  std::vector<ServerAddress> servers;
  std::istringstream in(list);
  for (std::string one; std::getline(in, one, ',');) {
    const size_t colon = one.find(':');
    servers.push_back({.host = one.substr(0, colon), .port = port});
    if (colon == std::string::npos)
      continue;
    const char *end = one.data() + one.size();
    const auto [rest, error] = std::from_chars(one.data() + colon + 1, end, servers.back().port);
    if (error != std::errc() || rest != end)
      throw Error("--also", "'" + one + "' is not ADDRESS:PORT");
  }
  return servers;
}

} // namespace

ClientOptions client_options(int argc, char **argv) {
  CommandLine line{"Many workers send requests by connections that they share."};
  CmOptions options{line, "the server"};
  ClientOptions settings;
  SenderOptions &sender = settings.sender;
  Load &load = settings.load;
  std::string also, sender_waits = "adaptive", waiting = "adaptive", responses = "both";
  uint32_t group_id = 0;
  line.add("--also", also, "further servers: ADDRESS[:PORT],ADDRESS[:PORT]");
  line.add("--to", load.server, "all requests to this server: 0 is --host [-1: they take turns]",
           -1, 13);
  line.add("--connections", sender.connections, "to each server [1]", 1, 14);
  line.add("--slots", sender.slots, "of each connection [4096]", 1, 1 << 24);
  line.add("--slot-size", sender.slot_size, "bytes, a multiple of 8 [64]", 32, 1 << 20);
  line.add("--window", sender.window, "requests without an answer [4096]", 1, 1 << 16);
  line.add("--area-slots", sender.area_slots, "slots of one process [1024]", 1, 1 << 24);
  line.add("--group", sender.group, "most slots in a group; 1: each message by itself [64]", 1,
           255);
  line.add("--responses", responses,
           "where they go: slots, connection (one of their own), or first the one and then the "
           "other: both [both]",
           {"slots", "connection", "both"});
  line.add("--largest", settings.largest,
           "bytes of a response, if they have a connection of their own [65536]", 64, 1 << 26);
  line.add("--sender-threads", sender.threads, "threads that have the connections [1]", 1, 14);
  line.add("--sender-waits", sender_waits,
           "how the sender waits: poll, events or adaptive [adaptive]", waiting_names);
  line.add("--waiting", waiting, "how the workers wait [adaptive]", waiting_names);
  line.add("--processes", settings.processes, "workers; 0: threads of this process [4]", 0, 1000);
  line.add("--threads", load.threads, "of each worker [2]", 1, 1024);
  line.add("--requests", load.requests, "of each thread [200]", 1, 100'000'000);
  line.add("--seconds", load.seconds, "for so long instead; 0: --requests [0]", 0, 36'000);
  line.add("--in-flight", load.in_flight, "requests of a thread that wait for a response [1]", 1,
           4096);
  line.add("--every", load.every_us,
           "microseconds between two requests of a thread, by a timetable; 0: as soon as there is "
           "room [0]",
           0, 1'000'000);
  line.add("--size", load.size, "bytes of a request [32]", 0, 1 << 26);
  line.add("--response-size", load.response_size, "bytes of a response [32]", 0, 1 << 26);
  line.add("--mixed", load.is_mixed, "random sizes up to these, and all kinds of requests");
  line.add("--patient", load.is_patient, "goes on after a request that has failed");
  line.add("--microseconds", load.microseconds, "that the server takes for each request [0]", 0,
           60'000'000);
  line.add("--name", sender.name, "under which other processes may attach", 100);
  line.add("--group-id", group_id, "whose members may attach as well; 0: nobody but this user [0]");
  line.add("--serve", settings.is_to_serve, "no workers of its own: until SIGTERM");
  line.add("--attach", settings.attach, "be a worker of the client with this name", 100);
  line.add("--latency", load.is_timed, "prints how long requests take");
  line.add("--report", settings.report, "prints its figures each so many seconds; 0: never [0]", 0,
           3600);
  line.add("--stats", settings.print_stats, "prints at the end what the sender has done");
  line.parse(argc, argv);
  check_timetable(line, load.every_us, load.in_flight);
  load.processes = std::max(settings.processes, 1U);
  load.limit = settings.timeout = options.timeout;
  settings.waiting = waiting_of(waiting);
  settings.in_slots = responses != "connection";
  settings.by_connection =
      responses == "connection" || (responses == "both" && !settings.is_to_serve);
  if (settings.is_to_serve)
    settings.processes = 0;
  sender.log = log_warning;
  sender.connect_within = options.timeout;
  sender.waiting = waiting_of(sender_waits);
  sender.servers = servers_in(also, options.cm_port);
  sender.servers.insert(sender.servers.begin(), {.host = options.host, .port = options.cm_port});
  if (group_id > 0)
    sender.members = group_id;
  return settings;
}

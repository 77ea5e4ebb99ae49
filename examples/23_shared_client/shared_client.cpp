// SPDX-License-Identifier: MIT
// 23_shared_client, the client: many processes and threads ask a server, or several, by a few
// connections that they share. One thread has the connections, and sends what is ready in groups.
//
// Lesson:  lessons/23_shared_client.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 23_shared_client
// By hand: shared_client --host ADDRESS                          workers that are its children
//          shared_client --host ADDRESS --name NAME --serve      none of its own: until SIGTERM
//          shared_client --attach NAME                           a worker, started by itself

#include "client_options.hpp"
#include "round.hpp"

#include <rdmacommon/options.hpp>
#include <rdmashared/caller.hpp>

#include <unistd.h>

#include <cstdint>
#include <list>

namespace {

// A worker of a client that somebody else has started.
void attach(const ClientOptions &settings) {
  auto caller = rdmashared::Caller::join(settings.attach, settings.waiting, settings.timeout);
  Load load = settings.load;
  load.is_long = caller.largest_response() > 0;
  print(run_load(caller, load, static_cast<uint32_t>(getpid())));
}

void shared_client_program(int argc, char **argv) {
  const ClientOptions settings = client_options(argc, argv);
  if (!settings.attach.empty())
    return attach(settings);
  // All workers are forked before there is any RDMA, whenever their turn comes (lesson 15).
  std::list<Round> rounds;
  if (settings.in_slots)
    rounds.emplace_back(settings, 0);
  if (settings.by_connection)
    rounds.emplace_back(settings, settings.largest);
  for (Round &round : rounds)
    round.run();
}

} // namespace

int main(int argc, char **argv) {
  return rdmacommon::run_main(argc, argv, shared_client_program);
}

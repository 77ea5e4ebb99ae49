// SPDX-License-Identifier: MIT
// Three ways to connect many processes with a server, at scale: how many queue pairs and receives
// each way needs, and how much memory, by the sizes that queues really have on this device.
#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmashared/sender.hpp>

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

struct Load {
  uint32_t hosts = 1000, processes = 64;   // client hosts, and client processes on each
  uint32_t servers = 8;                    // server processes, all on one host
  uint32_t in_flight = 16;                 // requests of a client process, to all servers together
  uint32_t request = 200, response = 1000; // bytes
  uint32_t slots = rdmashared::SenderOptions{}.slots; // slots of each ring of a shared client

  uint64_t clients() const { return uint64_t{hosts} * processes; }
};

// The need of one host: of a client host, or of the server's.
struct Need {
  uint64_t queue_pairs = 0, queues = 0, buffers = 0, receives = 0; // queues and buffers in bytes
};

struct Way {
  const char *name;
  Need client, server;
};

// ---- the size of a queue pair

uint64_t memory_of_this_process() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  if (!(file >> pages))
    throw Error("/proc/self/statm", "it has no size");
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Makes many queue pairs, and looks how much larger this process has become: by their queues, which
// program and device share, and by what the driver records about them.
// @return bytes of one
uint64_t size_of_queue_pair(const Port &port, uint32_t sends, uint32_t receives, uint32_t number) {
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq cq = create_cq(port.context.get(), 1);
  std::vector<unique_qp> made;
  made.reserve(number);
  const uint64_t before = memory_of_this_process();
  for (uint32_t i = 0; i < number; ++i)
    made.push_back(create_rc_qp(pd.get(), cq.get(),
                                {.max_send_wr = sends,
                                 .max_recv_wr = receives,
                                 .max_send_sge = 1,
                                 .max_recv_sge = 1,
                                 .max_inline_data = 64}));
  return (memory_of_this_process() - before) / number;
}

// ---- the three ways

// Memory for what is sent is needed for the requests under way only. Memory for what is received
// must be there for the worst case: all requests of a process go to the same server process.

// Each client process has a queue pair to each server process.
Way own_connections(const Load &load, uint64_t size) {
  const auto need = [&](uint64_t processes, uint32_t sent, uint32_t received) {
    const uint64_t queue_pairs = processes * load.servers;
    return Need{.queue_pairs = queue_pairs,
                .queues = queue_pairs * size,
                .buffers = load.in_flight * (processes * sent + queue_pairs * received),
                .receives = queue_pairs * load.in_flight};
  };
  return {.name = "own connections",
          .client = need(load.processes, load.request, load.response),
          .server = need(load.clients(), load.response, load.request)};
}

struct XrcSizes {
  uint64_t client, server, receiving; // bytes of a queue pair; the first two send
};

// A process sends to all processes of a host by one queue pair, which has no receive queue. At the
// other end is one that has no queue at all. Each process has one shared receive queue.
Way xrc(const Load &load, const XrcSizes &size) {
  const uint64_t to_clients = uint64_t{load.hosts} * load.servers, clients = load.clients();
  return {.name = "XRC",
          .client = {.queue_pairs = uint64_t{load.processes} + load.servers,
                     .queues = load.processes * size.client + load.servers * size.receiving,
                     .buffers = uint64_t{load.processes} * load.in_flight *
                                (uint64_t{load.request} + load.response),
                     .receives = uint64_t{load.processes} * load.in_flight},
          .server = {.queue_pairs = to_clients + clients,
                     .queues = to_clients * size.server + clients * size.receiving,
                     .buffers = clients * load.in_flight *
                                (uint64_t{load.servers} * load.request + load.response),
                     .receives = clients * load.in_flight * load.servers}};
}

// The depths of rdmashared's queue pairs (rdmashared/src/ring_connection.cpp).
constexpr uint32_t shared_sends = 512, shared_receives = 328;

// The sender of a host has a connection to each server process, with two rings.
Way shared_client(const Load &load, uint64_t size) {
  const auto need = [&](uint64_t queue_pairs) {
    return Need{.queue_pairs = queue_pairs,
                .queues = queue_pairs * size,
                .buffers = queue_pairs * 2 * load.slots * rdmashared::SenderOptions{}.slot_size,
                .receives = queue_pairs * shared_receives};
  };
  return {.name = "shared client",
          .client = need(load.servers),
          .server = need(uint64_t{load.hosts} * load.servers)};
}

// ---- the table

std::string in_units(uint64_t bytes) {
  constexpr std::array<const char *, 4> units{"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit)
    value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", unit == 0 ? 0 : 1, value, units.at(unit));
  return text.data();
}

void print_row(const std::string &name, const std::array<std::string, 3> &cells) {
  std::printf("%-28s %15s %15s %15s\n", name.c_str(), cells[0].c_str(), cells[1].c_str(),
              cells[2].c_str());
}

void print_table(const std::array<Way, 3> &ways) {
  const auto row = [&](const char *name, auto cell) {
    print_row(name, {cell(ways[0]), cell(ways[1]), cell(ways[2])});
  };
  row("", [](const Way &way) { return std::string(way.name); });
  for (const bool is_server : {false, true}) {
    const auto need = [&](const Way &way) { return is_server ? way.server : way.client; };
    std::printf("%s host\n", is_server ? "server" : "client");
    row("  queue pairs", [&](const Way &way) { return std::to_string(need(way).queue_pairs); });
    row("  queues", [&](const Way &way) { return in_units(need(way).queues); });
    row("  pinned buffers", [&](const Way &way) { return in_units(need(way).buffers); });
    row("  receives", [&](const Way &way) { return std::to_string(need(way).receives); });
  }
}

void at_scale(int argc, char **argv) {
  CommandLine line{"Compares three ways to connect many processes with a server."};
  const DeviceOptions options{line};
  Load load;
  uint32_t number = 1024;
  line.add("--hosts", load.hosts, "client hosts [1000]", 1, 1'000'000);
  line.add("--processes", load.processes, "client processes on each host [64]", 1, 1000);
  line.add("--servers", load.servers, "processes of the server, on one host [8]", 1, 1000);
  line.add("--in-flight", load.in_flight, "requests of each client process [16]", 1, 256);
  line.add("--request", load.request, "bytes of a request [200]", 1, 1 << 20);
  line.add("--response", load.response, "bytes of a response [1000]", 1, 1 << 20);
  line.add("--slots", load.slots, "slots of each ring of a shared client [4096]", 8, 1 << 24);
  line.add("--measure", number, "queue pairs to make for each measurement [1024]", 64, 16'384);
  line.parse(argc, argv);

  const Port port = open_port(options);
  const auto size = [&](const char *whose, uint32_t sends, uint32_t receives) {
    // Large ones take longer, and need not be as many.
    const uint64_t bytes =
        size_of_queue_pair(port, sends, receives, sends > 256 ? number / 8 : number);
    std::printf("%s: %u sends and %u receives: %s\n", whose, sends, receives,
                in_units(bytes).c_str());
    return bytes;
  };
  std::printf("the size of a queue pair\n");
  const Way own = own_connections(load, size("  own connections", load.in_flight, load.in_flight));
  const XrcSizes sizes{.client = size("  XRC, sends requests", load.in_flight, 1),
                       .server = size("  XRC, sends responses", load.in_flight * load.processes, 1),
                       .receiving = size("  XRC, receives", 1, 1)};
  const Way shared = shared_client(load, size("  shared client", shared_sends, shared_receives));
  print_table({own, xrc(load, sizes), shared});
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, at_scale);
}

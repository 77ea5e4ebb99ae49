// SPDX-License-Identifier: MIT
// 08_datagrams: one queue pair that talks to many, and what it takes until nothing is lost.
//
// Lesson:  lessons/08_datagrams.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 08_datagrams
// By hand: datagrams                 the server: one queue pair, which answers all senders
//          datagrams --host ADDRESS  the client: several queue pairs that send messages

#include "datagram_qp.hpp"
#include "message.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <bitset>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

using namespace rdmacommon;
using Clock = std::chrono::steady_clock;

namespace {

constexpr uint32_t max_peers = 16, max_messages = 64;

struct Settings {
  uint32_t qps = 3, messages = 4, receives = 4, tries = 20, resend_ms = 100, size = 0;
};

// One that has sent something. The server knows of it only by what it has received.
struct Peer {
  Source source; // QP and port that its datagrams come from
  unique_ah ah;  // the way back
  std::bitset<max_messages> have;
};

class Server {
public:
  Server(const Port &port, ibv_pd *pd, uint32_t receives)
      : port_(port), pd_(pd), datagrams_(port, pd, receives) {}

  uint32_t number() const { return datagrams_.number(); }

  // Takes one datagram, if there is one.
  bool take() {
    ibv_wc completion{};
    if (!datagrams_.poll(completion))
      return false;
    const char *slot = datagrams_.slot_at(completion.wr_id);
    if (const char *why = handle(slot, completion))
      print_refused(completion, why);
    datagrams_.receive_into(completion.wr_id);
    return true;
  }

  void print_summary() const {
    size_t messages = 0;
    for (const Peer &peer : peers_)
      messages += peer.have.count();
    std::printf("%zu different messages from %zu peers\n", messages, peers_.size());
  }

private:
  // [server-handle]
  const char *handle(const char *slot, const ibv_wc &completion) {
    const Arrived arrived(slot, completion);
    if (arrived.problem)
      return arrived.problem;
    if (arrived.message.kind != Kind::data)
      return "an acknowledgement of nothing";
    if (arrived.message.sequence >= max_messages)
      return "its sequence number is too high";
    Peer *peer = find_or_add(slot, arrived, completion);
    if (!peer)
      return "there is no way back, or no place for one peer more";
    peer->have.set(arrived.message.sequence); // perhaps not for the first time
    datagrams_.send({.ah = peer->ah.get(), .qpn = peer->source.qpn, .qkey = our_qkey},
                    encode({.kind = Kind::acknowledgement, .sequence = arrived.message.sequence}));
    return nullptr;
  }
  // [server-handle]

  // [ah-from-wc]
  Peer *find_or_add(const char *slot, const Arrived &arrived, const ibv_wc &completion) {
    for (Peer &peer : peers_)
      if (peer.source == arrived.source)
        return &peer;
    if (peers_.size() == max_peers)
      return nullptr;
    ibv_wc wc = completion; // neither parameter is const
    ibv_grh grh;
    std::memcpy(&grh, slot, sizeof grh);
    unique_ah ah(ibv_create_ah_from_wc(pd_, &wc, &grh, port_.number));
    if (!ah)
      return nullptr;
    std::printf("peer %zu is QP 0x%06x: %u bytes, %s\n", peers_.size() + 1, completion.src_qp,
                completion.byte_len, origin(arrived).c_str());
    peers_.push_back({.source = arrived.source, .ah = std::move(ah)});
    return &peers_.back();
  }
  // [ah-from-wc]

  const Port &port_;
  ibv_pd *pd_;
  std::vector<Peer> peers_;
  Datagrams datagrams_;
};

void server(const Port &port, ibv_pd *pd, const PairOptions &options, const Settings &settings) {
  Server server(port, pd, settings.receives);
  std::printf("one UD QP, %u receives posted\n", settings.receives);
  Exchange exchange(options);
  exchange.send(
      {.lid = port.attr.lid, .qpn = server.number(), .gid = port.gid.gid, .mtu = port.mtu});
  exchange.receive_done(); // not a look at the completion queue until then
  uint32_t found = 0;
  while (found < settings.receives && server.take())
    ++found;
  std::printf("%u datagrams had found a receive while I did not look\n", found);

  auto quiet_until = Clock::now() + options.timeout;
  while (!exchange.can_receive()) {
    if (server.take())
      quiet_until = Clock::now() + options.timeout;
    else if (Clock::now() > quiet_until)
      throw Error("the client", "neither sent anything nor finished in time");
  }
  exchange.receive_done();
  server.print_summary();
  exchange.finish();
}

// One queue pair of the client's, what it has to say, and what of that has been acknowledged.
struct Sender {
  Datagrams datagrams;
  std::vector<std::string> messages;
  std::bitset<max_messages> acknowledged;

  bool has_all() const { return acknowledged.count() == messages.size(); }
};

std::vector<Sender> make_senders(const Port &port, ibv_pd *pd, const Endpoint &server,
                                 const Settings &settings) {
  std::vector<Sender> senders;
  for (uint32_t number = 1; number <= settings.qps; ++number) {
    // Room for the acknowledgements of all messages, twice: they may have been sent twice.
    Sender sender{.datagrams = Datagrams(port, pd, 2 * settings.messages)};
    for (uint32_t sequence = 0; sequence < settings.messages; ++sequence) {
      std::string text = "message " + std::to_string(sequence) + " of QP " + std::to_string(number);
      text.resize(std::max<size_t>(text.size(), settings.size), '.');
      sender.messages.push_back(encode({.kind = Kind::data, .sequence = sequence, .text = text}));
      if (const size_t size = sender.messages.back().size(); size > sender.datagrams.mtu(server))
        throw Error("a datagram of " + std::to_string(size) + " bytes",
                    "a packet holds " + std::to_string(sender.datagrams.mtu(server)));
    }
    senders.push_back(std::move(sender));
  }
  return senders;
}

size_t count_acknowledged(const std::vector<Sender> &senders) {
  size_t count = 0;
  for (const Sender &sender : senders)
    count += sender.acknowledged.count();
  return count;
}

// [send-missing]
// Sends what has not been acknowledged, all of it again.
uint32_t send_missing(std::vector<Sender> &senders, const Destination &server) {
  uint32_t sent = 0;
  for (Sender &sender : senders)
    for (size_t sequence = 0; sequence < sender.messages.size(); ++sequence)
      if (!sender.acknowledged[sequence]) {
        sender.datagrams.send(server, sender.messages[sequence]);
        ++sent;
      }
  return sent;
}
// [send-missing]

// Takes an acknowledgement. Returns the reason to refuse it, or nullptr.
const char *take_acknowledgement(Sender &sender, const Endpoint &server, const Arrived &arrived,
                                 const ibv_wc &completion) {
  if (arrived.problem)
    return arrived.problem;
  if (completion.src_qp != server.qpn)
    return "not from the server's QP";
  if (arrived.has_grh ? std::memcmp(&arrived.source.gid, &server.gid, sizeof server.gid) != 0
                      : arrived.source.lid != server.lid)
    return "not from the server's address";
  if (arrived.message.kind != Kind::acknowledgement ||
      arrived.message.sequence >= sender.messages.size())
    return "no acknowledgement of what was sent";
  sender.acknowledged.set(arrived.message.sequence);
  return nullptr;
}

// Takes acknowledgements until nothing is missing, or until it is time to send again.
bool wait_for_acknowledgements(std::vector<Sender> &senders, const Endpoint &server,
                               std::chrono::milliseconds limit) {
  const auto missing = [](const Sender &sender) { return !sender.has_all(); };
  for (const auto until = Clock::now() + limit; Clock::now() < until;) {
    for (Sender &sender : senders) {
      ibv_wc completion{};
      if (!sender.datagrams.poll(completion))
        continue;
      // [wait]
      const Arrived arrived(sender.datagrams.slot_at(completion.wr_id), completion);
      if (const char *why = take_acknowledgement(sender, server, arrived, completion))
        print_refused(completion, why);
      sender.datagrams.receive_into(completion.wr_id);
      // [wait]
    }
    if (std::none_of(senders.begin(), senders.end(), missing))
      return true;
  }
  return false;
}

void client(const Port &port, ibv_pd *pd, const PairOptions &options, const Settings &settings) {
  Exchange exchange(options);
  const Endpoint server = exchange.receive();
  std::vector<Sender> senders = make_senders(port, pd, server, settings);
  // [create-ah]
  ibv_ah_attr way = route_to(port, server); // as lesson 02 put it into the QP
  const unique_ah ah(check_ptr(ibv_create_ah(pd, &way), "ibv_create_ah"));
  const Destination destination{.ah = ah.get(), .qpn = server.qpn, .qkey = our_qkey};
  // [create-ah]
  const std::chrono::milliseconds resend{settings.resend_ms};
  const uint32_t first = send_missing(senders, destination);
  std::printf("%u datagrams sent from %u QPs, and every SEND completed with success\n", first,
              settings.qps);
  if (!wait_for_acknowledgements(senders, server, resend))
    std::printf("no acknowledgement within the time limit\n");

  exchange.send_done(); // wakes the server
  uint32_t sent = first, tries = 0;
  size_t known = 0;
  while (!wait_for_acknowledgements(senders, server, resend)) {
    if (const size_t now = count_acknowledged(senders); now > known) {
      known = now;
      tries = 0; // it goes on, however slowly
    }
    if (tries++ == settings.tries)
      throw Error("the server", "acknowledged " + std::to_string(known) + " of " +
                                    std::to_string(first) + " messages; sending again " +
                                    std::to_string(settings.tries) + " times brought no more");
    sent += send_missing(senders, destination);
  }
  std::printf("all %u messages acknowledged; each was sent %.3f times\n", first,
              static_cast<double>(sent) / first);
  exchange.send_done();
  exchange.finish();
}

void datagrams(int argc, char **argv) {
  CommandLine line{"Sends datagrams from several queue pairs to one, which answers each."};
  PairOptions options{line};
  Settings settings;
  line.add("--qps", settings.qps, "client: how many queue pairs send [3]", 1, max_peers);
  line.add("--messages", settings.messages, "client: how many each sends [4]", 1, max_messages);
  line.add("--size", settings.size, "client: bytes of text to fill a message up to [0]", 0, 65535);
  line.add("--tries", settings.tries, "client: how often to send again in vain [20]", 0, 1000);
  line.add("--resend-ms", settings.resend_ms, "client: after so many ms [100]", 1, 10000);
  line.add("--receives", settings.receives, "server: how many receives to post [4]", 1, 1024);
  line.parse(argc, argv);

  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  (options.is_server() ? server : client)(port, pd.get(), options, settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, datagrams);
}

// SPDX-License-Identifier: MIT
// A peer for test_datagrams.py: takes the other side of 08_datagrams, and sends what is not right.
//   lying_datagrams messages|peers|silent --host ADDRESS   a client
//   lying_datagrams sometimes|always                a server

#include "datagram_qp.hpp"
#include "message.hpp"

#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/ud_queue_pair.hpp>

#include <chrono>

using namespace rdmacommon;
using Clock = std::chrono::steady_clock;

static std::string changed(std::string bytes, size_t at, char value) {
  bytes[at] = value;
  return bytes;
}

static std::string data(uint32_t sequence) {
  return encode({.kind = Kind::data, .sequence = sequence, .text = "text"});
}

static std::string acknowledgement(uint32_t sequence) {
  return encode({.kind = Kind::acknowledgement, .sequence = sequence});
}

static const std::vector<std::string> lies_to_server{
    "",                     // shorter than the header
    data(0).substr(0, 5),   // likewise
    changed(data(0), 0, 7), // not of this example
    changed(data(0), 4, 2), // another version
    changed(data(0), 7, 5), // its length: one more than there is
    changed(data(0), 6, '\xff'),
    changed(data(0), 7, 3),
    changed(data(0), 5, 9), // an unknown kind
    acknowledgement(0),
    data(64),
    data(0xffffffff)};

// Sends a right datagram, again and again, until it is acknowledged. The server takes datagrams in
// their order: all that was sent before has been looked at as well.
static void send_right(Datagrams &datagrams, const Destination &to, uint32_t sequence) {
  for (const auto start = Clock::now(); Clock::now() - start < std::chrono::minutes(1);) {
    datagrams.send(to, data(sequence));
    for (const auto sent = Clock::now(); Clock::now() - sent < std::chrono::milliseconds(100);)
      if (ibv_wc completion{}; datagrams.poll(completion)) {
        const Arrived arrived(datagrams.slot_at(completion.wr_id), completion);
        const uint32_t acknowledged = arrived.message.sequence;
        datagrams.receive_into(completion.wr_id);
        if (acknowledged == sequence) // and not one before, which was sent more than once
          return;
      }
  }
  throw Error("the server", "acknowledged nothing");
}

static void as_client(const std::string &what, const Port &port, ibv_pd *pd, Exchange &exchange) {
  const Endpoint server = exchange.receive();
  const unique_ah ah = create_ah(pd, port, server);
  const Destination to{.ah = ah.get(), .qpn = server.qpn, .qkey = our_qkey};
  exchange.send_done();
  if (what == "silent") {
    exchange.receive_done(); // a word that the server does not send
    return;
  }
  Datagrams known(port, pd, 4);
  uint32_t sequence = 0;
  if (what == "messages") {
    for (const std::string &lie : lies_to_server) {
      known.send(to, lie);
      send_right(known, to, sequence++);
    }
    known.send({.ah = to.ah, .qpn = to.qpn, .qkey = 1}, data(sequence));
    known.send({.ah = to.ah, .qpn = 0xfffffe, .qkey = our_qkey}, data(sequence));
    send_right(known, to, ++sequence);
  } else {
    send_right(known, to, sequence);
    for (int i = 1; i < 20; ++i) {
      Datagrams one_more(port, pd, 4);
      if (i < 16) {
        send_right(one_more, to, 0);
        continue;
      }
      one_more.send(to, data(0));
      send_right(known, to, ++sequence);
      if (ibv_wc completion{}; one_more.poll(completion))
        throw Error("the server", "acknowledged the message of one peer more");
    }
  }
  exchange.send_done();
}

static void as_server(const std::string &what, const Port &port, ibv_pd *pd, Exchange &exchange) {
  Datagrams datagrams(port, pd, 64), stranger(port, pd, 4);
  exchange.send(
      {.lid = port.attr.lid, .qpn = datagrams.number(), .gid = port.gid.gid, .mtu = port.mtu});
  exchange.receive_done();
  const unique_ah ah = create_ah(
      pd, port, {.lid = port.attr.lid, .gid = port.gid.gid}); // the client is on this host
  while (!exchange.can_receive()) {
    ibv_wc completion{};
    if (!datagrams.poll(completion))
      continue;
    const Arrived arrived(datagrams.slot_at(completion.wr_id), completion);
    const Destination back{.ah = ah.get(), .qpn = completion.src_qp, .qkey = our_qkey};
    const uint32_t sequence = arrived.message.sequence;
    datagrams.send(back, "");
    datagrams.send(back, acknowledgement(99999));
    datagrams.send(back, data(sequence));
    datagrams.send(back, acknowledgement(sequence) + "more");
    stranger.send(back, acknowledgement(sequence));
    if (what == "sometimes")
      datagrams.send(back, acknowledgement(sequence));
    datagrams.receive_into(completion.wr_id);
  }
}

static void lying_datagrams(int argc, char **argv) {
  CommandLine line{"Lies."};
  PairOptions options{line};
  std::string what;
  line.add("what", what, "how", {"messages", "peers", "silent", "sometimes", "always"});
  line.parse(argc, argv);
  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  Exchange exchange(options);
  (options.is_server() ? as_server : as_client)(what, port, pd.get(), exchange);
  exchange.finish();
}

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_datagrams);
}

// SPDX-License-Identifier: MIT
// For test_hostile_peer.py: a peer that does random things, to an honest slot server (with --host)
// or to honest shared clients (without). The same seed draws the same numbers. Their effect
// depends on the time as well.
#include "hostile_moves.hpp"
#include "service.hpp"
#include "slot_peer.hpp"
#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/options.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;
using Clock = std::chrono::steady_clock;

namespace {

// Ends a connection with a word to the peer, or lets it end without one.
void end(rdma_cm_id *id, Dice &dice) {
  if (dice.one_in(2))
    rdma_disconnect(id);
}

// ---- the client

// @param buffers for long responses
// @return whether it wants an answer
bool ask(Dice &dice, Hostile &hostile, const ibv_mr *buffers) {
  const Shape &shape = hostile.peer.shape;
  constexpr std::array kinds{Kind::request, Kind::request, Kind::request,     Kind::post,
                             Kind::ping,    Kind::cancel,  Kind::long_request};
  const Kind kind = kinds.at(dice.below(shape.long_responses > 0 ? 7 : 6));
  Header header{.max_response = dice.below(dice.one_in(8) ? hostile.longest() + 1 : 100),
                .id = dice.below(dice.one_in(4) ? 1000 : 8),
                .limit_ms = dice.one_in(8) ? dice.any() : 0,
                .kind = kind,
                .service = static_cast<uint8_t>(dice.below(3))};
  std::vector<std::byte> body;
  if (kind == Kind::long_request) {
    body.resize(ResponseBuffer::bytes);
    header.max_response = shape.largest;
    to_wire(std::span<std::byte, ResponseBuffer::bytes>(body),
            ResponseBuffer{.address = reinterpret_cast<uintptr_t>(buffers->addr),
                           .rkey = buffers->rkey ^ (dice.one_in(16) ? dice.any() : 0),
                           .length = shape.largest});
  }
  if (kind == Kind::request || kind == Kind::post || kind == Kind::long_request) {
    const ServiceHeader service{.response_length =
                                    htonl(dice.one_in(16) ? dice.any() : dice.below(100)),
                                .microseconds = htonl(dice.one_in(8) ? dice.below(5000) : 0)};
    const uint32_t length = dice.below(dice.one_in(16) ? hostile.longest() + 1 : 200);
    const size_t before = body.size();
    body.resize(before + length);
    std::memcpy(body.data() + before, &service, std::min<size_t>(length, sizeof service));
    header.length = length;
  }
  hostile.put(header, body);
  return kind == Kind::request || kind == Kind::long_request;
}

void client_round(const CmOptions &options, Dice &dice, Tally &tally) {
  std::optional<DataId> data; // goes after its queue pair
  const unique_event_channel channel = create_event_channel();
  const unique_cm_id id = create_cm_id(channel.get());
  cm_resolve(id.get(), channel.get(), options);
  const bool has_long = dice.one_in(2);
  Shape shape{.slots = 8 + dice.below(2000),
              .slot_size = 32 + 8 * dice.below(20),
              .window = 1 + dice.below(16),
              .long_responses = has_long ? 1 + dice.below(4) : 0,
              .largest = has_long ? 4096U : 0U};
  std::vector<std::byte> memory(std::max(shape.largest, 1U));
  Hostile hostile(id.get(), shape, channel.get(), dice, tally);
  Peer &peer = hostile.peer;
  const unique_mr buffers = reg_mr(peer.pd.get(), memory.data(), memory.size(),
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (dice.one_in(16)) { // a lie to the server
    hostile.has_lied();
    (dice.one_in(2) ? shape.slots : shape.window) <<= dice.below(20);
  }
  HelloBytes bytes = to_bytes(Hello{.purpose = Purpose::requests,
                                    .shape = shape,
                                    .address = peer.address(),
                                    .token = dice.any(),
                                    .rkey = peer.theirs->rkey});
  if (spoil(bytes, dice))
    hostile.has_lied();
  rdma_conn_param parameters =
      connection_parameters(&bytes, dice.one_in(16) ? dice.below(sizeof bytes) : sizeof bytes);
  check_errno(rdma_connect(id.get(), &parameters), "rdma_connect");
  if (dice.one_in(16))
    return;
  {
    const auto event = next_cm_event(channel.get(), RDMA_CM_EVENT_ESTABLISHED, options.timeout);
    const auto welcome = welcome_in(private_data(*event));
    if (event->event != RDMA_CM_EVENT_ESTABLISHED || !welcome)
      return;
    ++tally.connected;
    peer.their_address = welcome->address;
    peer.their_rkey = welcome->rkey;
    if (dice.one_in(16) != has_long) {
      data.emplace(options);
      peer.add_data_connection(data->id.get());
      data->join(dice.one_in(16) ? dice.any() : welcome->token, options.timeout);
    }
  }
  uint32_t under_way = 0; // requests
  hostile.go_on(
      [&] {
        if (under_way < peer.shape.window || dice.one_in(16)) // keeps to the window, mostly
          under_way += ask(dice, hostile, buffers.get());
      },
      [&](const Header &, std::span<const std::byte>) { under_way -= under_way > 0; });
  end(id.get(), dice);
}

// ---- the server

void answer(const Header &asked, const std::optional<ResponseBuffer> &buffer, Dice &dice,
            Hostile &hostile) {
  Peer &peer = hostile.peer;
  Header header{.id = asked.id, .kind = Kind::response};
  if (asked.kind == Kind::ping)
    header.kind = Kind::pong;
  else if (buffer && peer.data && !dice.one_in(16)) {
    header.kind = Kind::long_response;
    header.length = dice.below(std::min<uint64_t>(buffer->length, peer.slots.size()) + 1);
    ibv_sge local = piece(peer.mine.get(), peer.slots.data(), header.length);
    peer.data->queue.add(
        {.sg_list = &local,
         .num_sge = 1,
         .opcode = IBV_WR_RDMA_WRITE,
         .wr = {.rdma = {.remote_addr = buffer->address + (dice.one_in(32) ? dice.any() : 0),
                         .rkey = buffer->rkey}}});
    peer.data->queue.post();
  } else if (dice.one_in(8))
    header.kind = dice.one_in(2) ? Kind::failure : Kind::expired;
  std::vector<std::byte> body;
  if (header.kind == Kind::response || header.kind == Kind::failure) {
    body.resize(
        dice.below(std::min(asked.max_response, hostile.longest()) + (dice.one_in(32) ? 2 : 1)));
    header.length = static_cast<uint32_t>(body.size());
  }
  for (int times = dice.one_in(32) ? 2 : 1; times > 0; --times)
    hostile.put(header, body);
  if (dice.one_in(200))
    hostile.put({.kind = Kind::closing}, {});
}

// @param is_right the connection comes about
void server_round(const CmOptions &options, rdma_event_channel *channel, bool is_right, Dice &dice,
                  Tally &tally) {
  unique_cm_event event = next_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.timeout);
  if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
    return; // an event of an id that is gone
  const unique_cm_id id(event->id);
  Rejection why{};
  const auto hello = hello_in(private_data(*event), why);
  event.reset();
  if (!hello)
    throw Error("the client", words_for(why)); // it is honest
  if (hello->purpose == Purpose::data || (!is_right && dice.one_in(16)))
    return;
  unique_cm_id data; // goes after its queue pair
  Hostile hostile(id.get(), hello->shape, channel, dice, tally);
  Peer &peer = hostile.peer;
  peer.their_address = hello->address;
  peer.their_rkey = hello->rkey;
  Welcome welcome{.rejection = Rejection::none,
                  .window = hello->shape.window,
                  .address = peer.address(),
                  .rkey = peer.theirs->rkey,
                  .token = dice.any()};
  WelcomeBytes bytes = to_bytes(welcome);
  if (!is_right) {
    if (dice.one_in(8))
      welcome.window = dice.any();
    if (dice.one_in(16))
      welcome.rkey ^= dice.any();
    if (dice.one_in(16))
      welcome.rejection = static_cast<Rejection>(dice.any());
    bytes = to_bytes(welcome);
    if (spoil(bytes, dice)) // the client may write to another place of the ring
      hostile.has_lied();
    if (dice.one_in(16)) {
      rdma_reject(id.get(), &bytes, static_cast<uint8_t>(dice.below(sizeof bytes + 1)));
      return;
    }
  }
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  if (rdma_accept(id.get(), &parameters) != 0)
    return; // the client has given up
  ++tally.connected;
  if (hello->shape.long_responses > 0 && (is_right || !dice.one_in(16))) {
    while (!data) {
      event = next_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.timeout);
      const auto what = event->event;
      if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
        data.reset(event->id);
      event.reset(); // before its id goes
      if (what != RDMA_CM_EVENT_CONNECT_REQUEST && what != RDMA_CM_EVENT_ESTABLISHED)
        return;
    }
    peer.add_data_connection(data.get());
    if (rdma_accept(data.get(), &parameters) != 0)
      return;
  }
  struct Asked {
    Header header;
    std::optional<ResponseBuffer> buffer;
  };
  std::vector<Asked> asked;
  hostile.go_on(
      [&] {
        if (asked.empty())
          return;
        std::swap(asked[dice.below(asked.size())], asked.back()); // in any order
        if (!dice.one_in(32))                                     // else never
          answer(asked.back().header, asked.back().buffer, dice, hostile);
        asked.pop_back();
      },
      [&](const Header &header, std::span<const std::byte> body) {
        Asked one{.header = header, .buffer = {}};
        if (header.kind == Kind::long_request)
          one.buffer = response_buffer_in(body.first<ResponseBuffer::bytes>());
        if (header.kind != Kind::post && header.kind != Kind::cancel)
          asked.push_back(one);
      });
  end(id.get(), dice);
}

void hostile_peer(int argc, char **argv) {
  CommandLine line{"A peer that does random things."};
  const CmOptions options{line, "the server; without it, be the server"};
  uint32_t seed = 1;
  std::chrono::seconds seconds{20};
  line.add("--seed", seed, "of the random numbers [1]");
  line.add("--seconds", seconds, "for so long");
  line.parse(argc, argv);
  std::printf("seed %u\n", seed);
  Dice dice(seed);
  Tally tally;
  unique_event_channel channel;
  unique_cm_id listener;
  if (options.is_server()) {
    channel = create_event_channel();
    listener = cm_listen(channel.get(), options, 16);
  }
  std::fflush(stdout);
  // The time begins with the first request, or the first response: until then the other side may
  // not have started, or may be in a pause between two attempts to connect.
  for (auto end = Clock::time_point::max(); Clock::now() < end; ++tally.rounds) {
    if (options.is_server())
      server_round(options, channel.get(), tally.rounds == 0, dice, tally);
    else
      client_round(options, dice, tally);
    if (tally.from_the_peer > 0 && end == Clock::time_point::max())
      end = Clock::now() + seconds;
  }
  std::printf("%u rounds, %u connections, %llu actions, %llu messages from the other side\n",
              tally.rounds, tally.connected, static_cast<unsigned long long>(tally.actions),
              static_cast<unsigned long long>(tally.from_the_peer));
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, hostile_peer);
}

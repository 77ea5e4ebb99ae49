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

// How a connection ends: with a word, or without.
void end(rdma_cm_id *id, Dice &dice) {
  if (dice.one_in(2))
    rdma_disconnect(id);
}

// ---- the client

void ask(Peer &peer, uint32_t &next, Dice &dice, Hostile &hostile) {
  const Shape &shape = peer.shape;
  const uint32_t count = std::min(shape.slots, 1 + dice.below(dice.one_in(16) ? 600 : 3));
  if (next + count > shape.slots)
    next = 0;
  const uint32_t slot = dice.one_in(24) ? dice.below(shape.slots - count + 1) : next;
  next = slot + count;
  constexpr std::array kinds{Kind::request, Kind::post, Kind::long_request};
  const Kind kind = kinds.at(dice.below(shape.largest > 0 ? 3 : 2));
  const uint32_t room = count * shape.slot_size - static_cast<uint32_t>(sizeof(SlotHeader));
  SlotHeader header{.length = dice.below(room + 1),
                    .kind = static_cast<uint16_t>(dice.below(2) << 8 | static_cast<uint16_t>(kind)),
                    .flags = static_cast<uint16_t>(count),
                    .id = uint64_t{shape.slots} * dice.below(1000) + slot};
  if (dice.one_in(32))
    spoil(header, dice);
  peer.put(slot, header);
  const uint32_t most = kind == Kind::long_request ? shape.largest : room;
  const ServiceHeader service{.response_length =
                                  htonl(dice.one_in(16) ? dice.any() : dice.below(most + 1)),
                              .microseconds = htonl(dice.one_in(8) ? dice.below(5000) : 0)};
  std::memcpy(peer.slots.data() + size_t{slot} * shape.slot_size + sizeof header, &service,
              sizeof service);
  hostile.write_message(slot, count);
}

void client_round(const CmOptions &options, Dice &dice, Tally &tally) {
  std::optional<DataId> data; // goes after its queue pair
  const unique_event_channel channel = create_event_channel();
  const unique_cm_id id = create_cm_id(channel.get());
  cm_resolve(id.get(), channel.get(), options);
  Shape shape{.slots = 1U << (4 + dice.below(8)),
              .slot_size = 64 * (1 + dice.below(4)),
              .window = 1 + dice.below(16),
              .largest = dice.one_in(2) ? 4096U : 0U};
  Hostile hostile(id.get(), shape, channel.get(), dice, tally);
  Peer &peer = hostile.peer;
  if (dice.one_in(16)) // to the server
    (dice.one_in(2) ? shape.slots : shape.window) <<= dice.below(20);
  HelloBytes bytes = to_bytes(Hello{.purpose = Purpose::requests,
                                    .shape = shape,
                                    .answers_address = reinterpret_cast<uint64_t>(peer.into.data()),
                                    .data_address = reinterpret_cast<uint64_t>(peer.into.data()),
                                    .token = dice.any(),
                                    .answers_rkey = peer.theirs->rkey,
                                    .data_rkey = peer.theirs->rkey});
  spoil(bytes, dice);
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
    peer.mirror = {.mine = peer.mine,
                   .slot_size = peer.shape.slot_size,
                   .address = welcome->requests_address,
                   .rkey = welcome->requests_rkey,
                   .max_inline = 0};
    if (dice.one_in(16) == (peer.shape.largest == 0)) {
      data.emplace(options);
      peer.with.add_data_connection(data->id.get(), peer.shape.window, peer.shape.slots);
      data->join(dice.one_in(16) ? dice.any() : welcome->token, options.timeout);
    }
  }
  uint32_t next = 0, under_way = 0; // slots
  hostile.go_on(
      [&] {
        if (under_way > 0 && !dice.one_in(6)) // leaves room in the window, mostly
          return;
        const uint32_t before = next;
        ask(peer, next, dice, hostile);
        under_way += next > before ? next - before : next;
      },
      [&](Run run) { under_way -= std::min(under_way, run.count); });
  end(id.get(), dice);
}

// ---- the server

struct Asked {
  uint32_t slot;
  SlotHeader header;
};

void answer(Peer &peer, const Asked &asked, Dice &dice, Hostile &hostile) {
  const uint32_t count = std::max<uint32_t>(asked.header.flags, 1);
  const uint32_t slot = dice.one_in(32) ? dice.below(peer.shape.slots) : asked.slot;
  const auto kind = static_cast<Kind>(asked.header.kind & 0xff);
  if (peer.with.data && (kind == Kind::long_request ? !dice.one_in(16) : dice.one_in(64))) {
    const uint64_t most =
        std::min<uint64_t>(peer.shape.largest + dice.one_in(16), peer.slots.size());
    peer.write_data({.first = slot, .count = std::min(count, 255U)}, dice.below(most + 1));
    return;
  }
  SlotHeader header = asked.header;
  const Kind right = kind == Kind::post ? Kind::done
                     : dice.one_in(8)   ? Kind::failure
                                        : Kind::response;
  header.kind = static_cast<uint16_t>((header.kind & 0xff00) | static_cast<uint16_t>(right));
  header.length = dice.below(uint64_t{count} * peer.shape.slot_size - sizeof header + 1);
  if (dice.one_in(32))
    spoil(header, dice);
  peer.put(slot, header);
  for (int times = dice.one_in(32) ? 2 : 1; times > 0; --times)
    hostile.write_message(slot, count);
}

// Takes note of the requests of a run.
void note(const Peer &peer, Run run, std::vector<Asked> &asked, uint32_t &to_come) {
  if (to_come > 0) { // of a long one, which may have its answer already
    to_come -= std::min(to_come, run.count);
    return;
  }
  for (uint32_t slot = run.first, end = run.first + run.count; slot < end;) {
    SlotHeader wire;
    std::memcpy(&wire, peer.into.data() + size_t{slot} * peer.shape.slot_size, sizeof wire);
    asked.push_back({.slot = slot, .header = from_wire(wire)});
    slot += std::max<uint32_t>(asked.back().header.flags, 1);
    to_come = slot > end ? slot - end : 0;
  }
}

// @param is_right the connection comes about
void server_round(const CmOptions &options, rdma_event_channel *channel, bool is_right, Dice &dice,
                  Tally &tally) {
  unique_cm_event event = next_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.timeout);
  if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
    return; // of an id that is gone
  const unique_cm_id id(event->id);
  Refusal why{};
  const auto hello = hello_in(private_data(*event), why);
  event.reset();
  if (!hello)
    throw Error("the client", words_for(why)); // it is honest
  if (hello->purpose == Purpose::data || (!is_right && dice.one_in(16)))
    return;
  unique_cm_id data; // goes after its queue pair
  Hostile hostile(id.get(), hello->shape, channel, dice, tally);
  Peer &peer = hostile.peer;
  peer.mirror = {.mine = peer.mine,
                 .slot_size = hello->shape.slot_size,
                 .address = hello->answers_address,
                 .rkey = hello->answers_rkey,
                 .max_inline = 0};
  Welcome welcome{.refusal = Refusal::none,
                  .window = hello->shape.window,
                  .requests_address = reinterpret_cast<uint64_t>(peer.into.data()),
                  .requests_rkey = peer.theirs->rkey,
                  .token = dice.any()};
  WelcomeBytes bytes = to_bytes(welcome);
  if (!is_right) {
    if (dice.one_in(8))
      welcome.window = dice.any();
    if (dice.one_in(16))
      welcome.requests_rkey ^= dice.any();
    if (dice.one_in(16))
      welcome.refusal = static_cast<Refusal>(dice.any());
    bytes = to_bytes(welcome);
    spoil(bytes, dice);
    if (dice.one_in(16)) {
      rdma_reject(id.get(), &bytes, static_cast<uint8_t>(dice.below(sizeof bytes + 1)));
      return;
    }
  }
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  if (rdma_accept(id.get(), &parameters) != 0)
    return; // the client has given up
  ++tally.connected;
  if (hello->shape.largest > 0 && (is_right || !dice.one_in(16))) {
    peer.data_address = hello->data_address;
    peer.data_rkey = hello->data_rkey;
    while (!data) {
      event = next_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.timeout);
      const auto what = event->event;
      if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
        data.reset(event->id);
      event.reset(); // before its id goes
      if (what != RDMA_CM_EVENT_CONNECT_REQUEST && what != RDMA_CM_EVENT_ESTABLISHED)
        return;
    }
    peer.with.add_data_connection(data.get(), 0, peer.shape.slots);
    if (rdma_accept(data.get(), &parameters) != 0)
      return;
  }
  std::vector<Asked> asked;
  uint32_t to_come = 0;
  hostile.go_on(
      [&] {
        if (asked.empty())
          return;
        std::swap(asked[dice.below(asked.size())], asked.back()); // in any order
        if (!dice.one_in(32))                                     // else never
          answer(peer, asked.back(), dice, hostile);
        asked.pop_back();
      },
      [&](Run run) { note(peer, run, asked, to_come); });
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
  // The time begins when the other side has sent something: until then it may not have started.
  for (auto end = Clock::time_point::max(); Clock::now() < end; ++tally.rounds) {
    if (options.is_server())
      server_round(options, channel.get(), tally.rounds == 0, dice, tally);
    else
      client_round(options, dice, tally);
    if (tally.from_the_peer > 0 && end == Clock::time_point::max())
      end = Clock::now() + seconds;
  }
  std::printf("%u rounds, %u connections, %llu actions, %llu slots from the other side\n",
              tally.rounds, tally.connected, static_cast<unsigned long long>(tally.actions),
              static_cast<unsigned long long>(tally.from_the_peer));
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, hostile_peer);
}

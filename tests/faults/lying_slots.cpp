// SPDX-License-Identifier: MIT
// For test_shared_client.py: a shared client, or a slot server, that says one thing that cannot be.
#include "service.hpp"
#include "slot_peer.hpp"
#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

constexpr Shape shape{.slots = 2048, .slot_size = 64, .window = 4, .largest = 0};

using Lie = std::function<void(Peer &)>;

// A request of one slot that is right, but for what `change` makes of it.
Lie request(const std::function<void(SlotHeader &)> &change, Run run = {.first = 2, .count = 1}) {
  return [=](Peer &peer) {
    SlotHeader header{
        .length = 8, .kind = static_cast<uint16_t>(Kind::request), .flags = 1, .id = run.first};
    change(header);
    peer.put(run.first, header);
    peer.write(run, 24);
  };
}

// A request of so many slots, from slot 0 on, that comes in these runs.
Lie cut(uint16_t slots, const std::vector<Run> &runs, uint32_t first = 0) {
  return [=](Peer &peer) {
    peer.put(
        first,
        {.length = 8, .kind = static_cast<uint16_t>(Kind::request), .flags = slots, .id = first});
    for (const Run &run : runs)
      peer.write(run, 64);
  };
}

// What the service is asked for in slot 2: a response of eight bytes, `microseconds` later.
void ask_the_service(Peer &peer, uint32_t microseconds) {
  const ServiceHeader service{.response_length = htonl(8), .microseconds = htonl(microseconds)};
  std::memcpy(peer.slots.data() + 2 * shape.slot_size + sizeof(SlotHeader), &service,
              sizeof service);
}

const std::map<std::string, Lie> client_lies = {
    {"none", request([](SlotHeader &) {})},
    {"kind", request([](SlotHeader &header) { header.kind = 77; })},
    {"answer",
     request([](SlotHeader &header) { header.kind = static_cast<uint16_t>(Kind::done); })},
    {"long", request([](SlotHeader &header) { // without a data connection
       header.kind = static_cast<uint16_t>(Kind::long_request);
     })},
    {"no-slots", request([](SlotHeader &header) { header.flags = 0; })},
    {"slots", request([](SlotHeader &header) { header.flags = 2; })},
    {"length", request([](SlotHeader &header) { header.length = 49; })},
    {"huge", request([](SlotHeader &header) { header.length = 0xffffffff; })},
    {"id", request([](SlotHeader &header) { header.id = 3; })},
    {"beyond", [](Peer &peer) { peer.write({.first = 2047, .count = 2}, 0); }},
    {"far-beyond", [](Peer &peer) { peer.write({.first = 0xffffff, .count = 255}, 0); }},
    {"empty", [](Peer &peer) { peer.write({.first = 0, .count = 0}, 0); }},
    {"twice",
     [](Peer &peer) { // the first takes a second
       ask_the_service(peer, 1'000'000);
       request([](SlotHeader &) {})(peer);
       request([](SlotHeader &) {})(peer);
     }},
    {"window",
     [](Peer &peer) {
       for (uint32_t slot = 0; slot < 5; ++slot)
         peer.put(
             slot,
             {.length = 8, .kind = static_cast<uint16_t>(Kind::request), .flags = 1, .id = slot});
       peer.write({.first = 0, .count = 5}, 5 * shape.slot_size);
     }},
    {"rnr", // more runs than the window
     [](Peer &peer) {
       for (uint32_t i = 0; i < 64; ++i)
         add_run(peer.with.runs.queue, peer.mirror, {.first = i % 16, .count = 1}, 0);
       peer.with.runs.queue.post();
     }},
    {"cut", cut(300, {{0, 255}, {256, 44}})},
    {"cut-short", cut(300, {{0, 100}, {100, 200}})},
    {"cut-other", cut(300, {{0, 255}, {1000, 1}})},
    {"cut-end", cut(300, {{1793, 255}, {0, 45}}, 1793)},
    {"cut-window", cut(1100, {{0, 255}, {255, 255}, {510, 255}, {765, 255}, {1020, 80}})},
    {"send", [](Peer &peer) { post_send(peer.with.runs.get(), {.opcode = IBV_WR_SEND}); }},
    {"silence", [](Peer &) {}},
    {"data-rkey",
     [](Peer &peer) {
       ask_the_service(peer, 0);
       request([](SlotHeader &header) { header.kind = static_cast<uint16_t>(Kind::long_request); })(
           peer);
     }},
    {"no-data-connection",
     [](Peer &peer) { // the response should go by the connection that is missing
       ask_the_service(peer, 0);
       request([](SlotHeader &) {})(peer);
     }},
};

void change_hello(const std::string &lie, Hello &hello) {
  if (lie == "slots-13")
    hello.shape.slots = 13;
  else if (lie == "slots-many")
    hello.shape.slots = 1 << 30;
  else if (lie == "slot-size")
    hello.shape.slot_size = 63;
  else if (lie == "window-0")
    hello.shape.window = 0;
  else if (lie == "largest")
    hello.shape.largest = 0xffffffff;
  else if (lie == "purpose")
    hello.purpose = static_cast<Purpose>(7);
  else if (lie == "stranger")
    hello.purpose = Purpose::data;
  else if (lie == "no-data-connection" || lie == "half-connected")
    hello.shape.largest = 64;
  else if (lie == "data-rkey" || lie == "data-twice")
    hello.shape.largest = 64; // where the response goes is 0, with the key 0
  else if (lie == "rkey")
    hello.answers_rkey ^= 0x5500;
}

std::string rejection(const unique_cm_event &event) {
  const auto welcome = welcome_in(private_data(*event));
  if (event->event != RDMA_CM_EVENT_REJECTED || !welcome)
    return name_of(event->event);
  return std::string("rejected: ") + words_for(welcome->refusal);
}

std::string one_lie(const std::string &lie, const CmOptions &options) {
  std::optional<DataId> data; // goes after its queue pair
  const unique_event_channel channel = create_event_channel();
  const unique_cm_id id = create_cm_id(channel.get());
  cm_resolve(id.get(), channel.get(), options);
  Peer peer(id.get(), shape);
  Hello hello{.purpose = Purpose::requests,
              .shape = shape,
              .answers_address = reinterpret_cast<uint64_t>(peer.into.data()),
              .data_address = 0,
              .token = 4711,
              .answers_rkey = peer.theirs->rkey,
              .data_rkey = 0};
  change_hello(lie, hello);
  HelloBytes bytes = to_bytes(hello, lie == "version" ? 9 : protocol_version);
  if (lie == "magic")
    bytes.bytes[0] = std::byte{0};
  rdma_conn_param parameters = connection_parameters(&bytes, lie == "nothing" ? 0 : sizeof bytes);
  check_errno(rdma_connect(id.get(), &parameters), "rdma_connect");
  uint64_t token = 0;
  {
    const unique_cm_event event =
        next_cm_event(channel.get(), RDMA_CM_EVENT_ESTABLISHED, options.timeout);
    if (event->event == RDMA_CM_EVENT_REJECTED)
      return rejection(event);
    const auto welcome = welcome_in(private_data(*event));
    if (!welcome)
      throw Error("the server", "no welcome");
    token = welcome->token;
    peer.mirror = {.mine = peer.mine,
                   .slot_size = shape.slot_size,
                   .address = welcome->requests_address,
                   .rkey = welcome->requests_rkey,
                   .max_inline = 0};
  }
  if (lie == "data-rkey" || lie == "data-twice") {
    data.emplace(options);
    peer.with.add_data_connection(data->id.get(), shape.window, shape.slots);
    if (const auto event = data->join(token, options.timeout);
        event->event != RDMA_CM_EVENT_ESTABLISHED)
      throw Error("the data connection", rejection(event));
  }
  if (lie == "data-twice" || lie == "data-unwanted") {
    const uint32_t nobody =
        peer.with.runs.get()->qp_num ^ 0x800000; // the CM knows those that are connected
    return rejection(DataId(options).join(token, options.timeout, nobody));
  }
  if (const auto found = client_lies.find(lie); found != client_lies.end())
    found->second(peer);
  else if (lie == "rkey") // the server's answer goes nowhere
    client_lies.at("none")(peer);
  // A lie may arrive before the ready-to-use message does. A server that drops us then, rejects us.
  const auto event =
      next_cm_event(channel.get(), RDMA_CM_EVENT_DISCONNECTED, options.timeout)->event;
  return event == RDMA_CM_EVENT_REJECTED ? name_of(RDMA_CM_EVENT_DISCONNECTED) : name_of(event);
}

// ---- the server

using Answer =
    std::function<void(Peer &, SlotHeader)>; // to a request of one slot that came with this header

Answer answer(const std::function<void(SlotHeader &)> &change) {
  return [=](Peer &peer, SlotHeader header) {
    const uint32_t slot = header.id % shape.slots;
    header.kind = static_cast<uint16_t>(Kind::response);
    change(header);
    peer.put(slot, header);
    peer.write({.first = slot, .count = 1}, 64);
  };
}

// To a request of 300 slots: runs that begin so many slots behind the first.
Answer cut_answer(const std::vector<Run> &runs, uint64_t other_id = 0) {
  return [=](Peer &peer, SlotHeader header) {
    const uint32_t slot = header.id % shape.slots;
    header.kind = static_cast<uint16_t>(Kind::response);
    header.id ^= other_id;
    peer.put(slot, header);
    for (const Run &run : runs)
      peer.write({.first = (slot + run.first) % shape.slots, .count = run.count}, 64);
  };
}

const std::map<std::string, Answer> server_lies = {
    {"kind", answer([](SlotHeader &header) { header.kind = 99; })},
    {"request",
     answer([](SlotHeader &header) { header.kind = static_cast<uint16_t>(Kind::request); })},
    {"data", answer([](SlotHeader &header) { header.kind = static_cast<uint16_t>(Kind::data); })},
    {"done", answer([](SlotHeader &header) { header.kind = static_cast<uint16_t>(Kind::done); })},
    {"id", answer([](SlotHeader &header) { header.id += shape.slots; })},
    {"slots", answer([](SlotHeader &header) { header.flags = 2; })},
    {"length", answer([](SlotHeader &header) { header.length = 49; })},
    {"huge", answer([](SlotHeader &header) { header.length = 0xffffffff; })},
    {"nobody", [](Peer &peer, SlotHeader) { peer.write({.first = 12, .count = 1}, 0); }},
    {"beyond", [](Peer &peer, SlotHeader) { peer.write({.first = 2047, .count = 2}, 0); }},
    {"twice",
     [](Peer &peer, SlotHeader header) {
       answer([](SlotHeader &) {})(peer, header);
       answer([](SlotHeader &) {})(peer, header);
     }},
    {"long", // a right one, and then once more
     [](Peer &peer, SlotHeader header) {
       const Run run{.first = static_cast<uint32_t>(header.id % shape.slots), .count = 1};
       peer.write_data(run, 0);
       peer.write_data(run, 0);
     }},
    {"long-nobody", [](Peer &peer, SlotHeader) { peer.write_data({.first = 12, .count = 1}, 0); }},
    {"long-slots",
     [](Peer &peer, SlotHeader header) {
       peer.write_data({.first = static_cast<uint32_t>(header.id % shape.slots), .count = 2}, 0);
     }},
    {"long-beyond",
     [](Peer &peer, SlotHeader) { peer.write_data({.first = 2047, .count = 2}, 0); }},
    {"long-huge",
     [](Peer &peer, SlotHeader header) {
       peer.write_data({.first = static_cast<uint32_t>(header.id % shape.slots), .count = 1}, 65);
     }},
    {"long-in-slots", answer([](SlotHeader &) {})},
    {"cut", cut_answer({{0, 255}, {256, 44}})},
    {"cut-short", cut_answer({{0, 100}, {100, 200}})},
    {"cut-other", cut_answer({{0, 255}, {1000, 1}})},
    {"cut-id", cut_answer({{0, 255}, {255, 45}}, shape.slots)},
    {"welcome", [](Peer &, SlotHeader) {}},
    {"no-window", [](Peer &, SlotHeader) {}},
    {"silence", [](Peer &, SlotHeader) {}},
};

// @param channel of a listener
std::string one_lie_to_a_client(const std::string &lie, rdma_event_channel *channel,
                                const CmOptions &options) {
  unique_cm_event asked = wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.wait);
  const unique_cm_id id(asked->id);
  Refusal refusal{};
  const auto hello = hello_in({static_cast<const std::byte *>(asked->param.conn.private_data),
                               asked->param.conn.private_data_len},
                              refusal);
  asked.reset();
  unique_cm_id data; // goes after its queue pair
  Peer peer(id.get(), shape);
  peer.mirror = {.mine = peer.mine,
                 .slot_size = shape.slot_size,
                 .address = hello.value().answers_address,
                 .rkey = hello->answers_rkey,
                 .max_inline = 0};
  WelcomeBytes bytes =
      to_bytes(Welcome{.refusal = Refusal::none,
                       .window = lie == "no-window" ? 0U : 4U,
                       .requests_address = reinterpret_cast<uint64_t>(peer.into.data()),
                       .requests_rkey = peer.theirs->rkey,
                       .token = 1});
  if (lie == "welcome")
    bytes.bytes[0] = std::byte{0};
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_accept(id.get(), &parameters), "rdma_accept");
  {
    const unique_cm_event first =
        next_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
    // The client may leave as soon as it has the Welcome. Its last packet can come without the one
    // before it.
    if ((lie == "welcome" || lie == "no-window") && first->event == RDMA_CM_EVENT_DISCONNECTED)
      return name_of(first->event);
    check_cm_event(*first, RDMA_CM_EVENT_ESTABLISHED);
  }
  if (hello->shape.largest > 0) {
    peer.data_address = hello->data_address;
    peer.data_rkey = hello->data_rkey;
    data.reset(wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.timeout)->id);
    peer.with.add_data_connection(data.get(), 0, shape.slots);
    check_errno(rdma_accept(data.get(), &parameters), "rdma_accept");
    wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  }
  if (lie != "welcome" && lie != "no-window") {
    std::vector<ibv_wc> done(1);
    while (peer.with.poll(done) == 0)
      ;
    const ibv_wc &wc = done.front();
    check_wc(wc, "the request");
    SlotHeader header;
    std::memcpy(&header,
                peer.into.data() + size_t{from_immediate(wc.imm_data).first} * shape.slot_size,
                sizeof header);
    server_lies.at(lie)(peer, from_wire(header));
  }
  return name_of(next_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout)->event);
}

void lying_slots(int argc, char **argv) {
  CommandLine line{"A peer that lies."};
  const CmOptions options{line, "the server; without it, be the server"};
  std::string lies = "none";
  line.add("--lies", lies, "about what, one connection after the other: LIE,LIE");
  line.parse(argc, argv);
  std::istringstream in(lies);
  if (!options.is_server()) {
    for (std::string lie; std::getline(in, lie, ',');)
      std::printf("%s: %s\n", lie.c_str(), one_lie(lie, options).c_str());
    return;
  }
  const unique_event_channel channel = create_event_channel();
  const unique_cm_id listener = cm_listen(channel.get(), options, 16);
  std::fflush(stdout);
  for (std::string lie; std::getline(in, lie, ',');)
    std::printf("%s: %s\n", lie.c_str(), one_lie_to_a_client(lie, channel.get(), options).c_str());
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_slots);
}

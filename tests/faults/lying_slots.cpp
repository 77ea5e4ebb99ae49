// SPDX-License-Identifier: MIT
// For test_shared_client.py: a shared client, or a slot server, that says one thing that cannot be.
#include "slot_peer.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>

#include <poll.h>

#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

constexpr Shape shape{
    .slots = 2048, .slot_size = 64, .window = 4, .long_responses = 0, .largest = 0};
// The service is asked for eight bytes at once.
constexpr std::array<std::byte, 8> body{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{8}};

using Lie = std::function<void(Peer &)>;

// A request that is right, but for what `change` makes of it.
Lie request(const std::function<void(Header &)> &change, bool is_long = false) {
  return [=](Peer &peer) {
    Header header{.length = body.size(), .max_response = 8, .id = 7, .kind = Kind::request};
    change(header);
    std::array<std::byte, ResponseBuffer::bytes + body.size()> with_buffer{};
    to_wire(std::span(with_buffer).first<ResponseBuffer::bytes>(),
            {.address = 0, .rkey = 0, .length = 8});
    std::ranges::copy(body, with_buffer.begin() + ResponseBuffer::bytes);
    is_long ? peer.send(0, header, with_buffer) : peer.send(0, header, body);
  };
}

const Lie right = request([](Header &) {});

void long_request(Header &header) {
  header.kind = Kind::long_request;
}

// The messages of the other side, each of which comes in a slot of its own.
class Incoming {
public:
  explicit Incoming(Peer &peer, bool answers_pings = false)
      : peer_(peer), answers_pings_(answers_pings) {}

  // Waits for the next request or answer. The other side may ask between two of them whether this
  // side lives. Without an answer it leaves after some seconds.
  // @return nothing if it leaves
  std::optional<Header> next() {
    for (;;) {
      while (slot_ == come_) {
        if (has_left())
          return std::nullopt;
        take();
      }
      const Header header = peer_.header(slot_++);
      if (header.kind == Kind::ping && answers_pings_)
        peer_.send(pongs_++, {.kind = Kind::pong});
      if (header.kind != Kind::ping && header.kind != Kind::alive)
        return header;
    }
  }

private:
  bool has_left() const {
    rdma_event_channel *const channel = peer_.requests.holder->channel;
    pollfd entry{.fd = channel->fd, .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, 0) <= 0)
      return false;
    wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, std::chrono::seconds(1));
    return true;
  }

  void take() {
    ibv_wc done{};
    if (poll_batch(peer_.cq.get(), {&done, 1}) == 0)
      return;
    check_wc(done, "a message");
    if ((done.opcode & IBV_WC_RECV) != 0)
      come_ += from_immediate(done.imm_data).count;
  }

  Peer &peer_;
  const bool answers_pings_; // in the slots from 0 on, so nothing else may be sent
  uint32_t slot_ = 0, come_ = 0, pongs_ = 0;
};

// No lie: it cancels a request that has been answered, while another one is under way. Then it uses
// the id again, and the server must answer that.
void cancel_late(Peer &peer) {
  Incoming answers(peer);
  right(peer);
  const auto expects_answer = [&] {
    if (const auto answer = answers.next(); !answer || answer->kind != Kind::response)
      throw Error("the answer", "there is none, or it is of another kind");
  };
  expects_answer();
  const std::array<uint32_t, 2> takes_a_while{0, htonl(500'000)}; // ServiceHeader
  peer.send(1, {.length = 8, .max_response = 8, .id = 8, .kind = Kind::request},
            std::as_bytes(std::span(takes_a_while)));
  peer.send(2, {.id = 7, .kind = Kind::cancel});
  peer.send(3, {.length = 0, .max_response = 8, .id = 7, .kind = Kind::request});
  expects_answer();
  expects_answer();
  peer.send(4, {.kind = static_cast<Kind>(77)}); // a lie: the server drops the client
}

// The server has memory for one batch at a time, and the first request takes long. So it takes no
// more runs. This side goes on sending, and waits for no credit.
void no_credit(Peer &peer) {
  const std::array<uint32_t, 2> asks{0, htonl(10'000'000)}; // ServiceHeader
  peer.put(0, {.length = 8, .max_response = 100, .kind = Kind::post},
           std::as_bytes(std::span(asks)));
  peer.put(1, {.kind = Kind::ping});
  peer.write({.first = 0, .count = 2}, shape.slot_size + Header::bytes);
  if (!Incoming(peer).next()) // the pong: the server has taken this run
    throw Error("the server", "it answers no ping");
  for (uint32_t slot = 2; slot < 2 + runs_ahead; ++slot) // with the first run, that is one too many
    peer.send(slot, {.kind = Kind::post});
}

// So many bytes, as a run.
Lie run(Run as, uint32_t bytes) {
  return [=](Peer &peer) { peer.write(as, bytes); };
}

const std::map<std::string, Lie> client_lies = {
    {"kind", request([](Header &header) { header.kind = static_cast<Kind>(77); })},
    {"cancel-late", cancel_late},
    {"answer", request([](Header &header) { header.kind = Kind::response; })},
    {"long", request(long_request, true)}, // without a data connection
    {"length", request([](Header &header) { header.length = 100; })},
    {"huge", request([](Header &header) { header.length = 0xffffffff; })},
    {"max-response", request([](Header &header) { header.max_response = 0xffffffff; })},
    {"post-max-response", request([](Header &header) {
       header.kind = Kind::post;
       header.max_response = 0xffffffff;
     })},
    {"no-header", run({.first = 0, .count = 1}, 10)},
    {"bytes", run({.first = 0, .count = 2}, 24)},
    {"no-bytes", run({.first = 0, .count = 1}, 0)},
    {"beyond", run({.first = 2047, .count = 2}, 0)},
    {"far-beyond", run({.first = 0xffffff, .count = 255}, 0)},
    {"not-next", run({.first = 1, .count = 1}, 24)},
    {"twice",
     [](Peer &peer) {
       right(peer);
       right(peer);
     }},
    {"no-rtu", // the lie comes after an answer to a client that has sent no RTU
     [](Peer &peer) {
       right(peer);
       if (!Incoming(peer).next())
         throw Error("the server", "it answers nothing");
       right(peer);
     }},
    {"cut", // a message of two runs, of which the second is another one
     [](Peer &peer) {
       peer.put(0, {.length = 300 * 64, .max_response = 8, .id = 7, .kind = Kind::request});
       peer.write({.first = 0, .count = 255}, 255 * 64);
       peer.write({.first = 256, .count = 45}, 45 * 64);
     }},
    {"credits", [](Peer &peer) { peer.give_credit(1); }},
    {"no-credit", no_credit},
    {"half-left",
     [](Peer &peer) {
       check_errno(rdma_disconnect(peer.requests.holder.get()), "rdma_disconnect");
     }},
    {"window",
     [](Peer &peer) {
       for (uint32_t slot = 0; slot < 5; ++slot)
         peer.put(slot, {.length = 8, .max_response = 8, .id = slot, .kind = Kind::request});
       peer.write({.first = 0, .count = 5}, 5 * 64);
     }},
    {"send", [](Peer &peer) { post_send(peer.requests.holder->qp, {.opcode = IBV_WR_SEND}); }},
    {"rkey", right},                            // the answer goes nowhere
    {"data-rkey", request(long_request, true)}, // and so does the long response
};

void change_hello(const std::string &lie, Hello &hello) {
  if (lie == "slots-7")
    hello.shape.slots = 7;
  else if (lie == "slots-many")
    hello.shape.slots = 1 << 30;
  else if (lie == "slot-size")
    hello.shape.slot_size = 63;
  else if (lie == "window-0")
    hello.shape.window = 0;
  else if (lie == "long-responses")
    hello.shape.long_responses = 1; // one response of no bytes
  else if (lie == "largest")
    hello.shape = {
        .slots = 8, .slot_size = 64, .window = 1, .long_responses = 1, .largest = 0xffffffff};
  else if (lie == "purpose")
    hello.purpose = static_cast<Purpose>(7);
  else if (lie == "stranger")
    hello.purpose = Purpose::data;
  else if (lie == "half-connected" || lie == "half-left" || lie == "data-rkey" ||
           lie == "data-twice")
    hello.shape.long_responses = 1, hello.shape.largest = 64;
  else if (lie == "no-credit")
    hello.shape.slots = 2 * shape.slots;
  else if (lie == "rkey")
    hello.rkey ^= 0x5500;
}

std::string rejection(const unique_cm_event &event) {
  const auto welcome = welcome_in(private_data(*event));
  if (event->event != RDMA_CM_EVENT_REJECTED || !welcome)
    return name_of(event->event);
  return std::string("rejected: ") + words_for(welcome->rejection);
}

// Waits for the server's answer, and sends no RTU, the client's last packet.
unique_cm_event connect_without_rtu(rdma_cm_id *id, const CmOptions &options) {
  ibv_qp *const qp = std::exchange(id->qp, nullptr); // librdmacm connects no queue pair, then
  pollfd entry{.fd = id->channel->fd, .events = POLLIN, .revents = 0};
  ::poll(&entry, 1, static_cast<int>(options.timeout.count()) * 1000);
  unique_cm_event event = take_cm_event(id->channel);
  id->qp = qp; // before anything throws: it is destroyed by the id
  if (!event)
    throw Error("CONNECT_RESPONSE", "no event in time");
  check_cm_event(*event, RDMA_CM_EVENT_CONNECT_RESPONSE);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attr{.qp_state = state};
    int mask = 0;
    check_errno(rdma_init_qp_attr(id, &attr, &mask), "rdma_init_qp_attr");
    check_rc(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp");
  }
  return event;
}

std::string one_lie(const std::string &lie, const CmOptions &options) {
  std::optional<DataId> data; // goes after its queue pair
  const unique_event_channel channel = create_event_channel();
  const unique_cm_id id = create_cm_id(channel.get());
  cm_resolve(id.get(), channel.get(), options);
  Peer peer(id.get(), shape);
  Hello hello{.purpose = Purpose::requests,
              .shape = shape,
              .address = peer.address(),
              .token = 4711,
              .rkey = peer.theirs->rkey};
  change_hello(lie, hello);
  HelloBytes bytes = to_bytes(hello, lie == "version" ? newest_version + 1 : oldest_version);
  if (lie == "magic")
    bytes.bytes[0] = std::byte{0};
  rdma_conn_param parameters = connection_parameters(&bytes, lie == "nothing" ? 0 : sizeof bytes);
  check_errno(rdma_connect(id.get(), &parameters), "rdma_connect");
  uint64_t token = 0;
  {
    const unique_cm_event event =
        lie == "no-rtu" ? connect_without_rtu(id.get(), options)
                        : next_cm_event(channel.get(), RDMA_CM_EVENT_ESTABLISHED, options.timeout);
    if (event->event == RDMA_CM_EVENT_REJECTED)
      return rejection(event);
    const auto welcome = welcome_in(private_data(*event));
    if (!welcome)
      throw Error("the server", "no welcome");
    token = welcome->token;
    peer.their_address = welcome->address;
    peer.their_rkey = welcome->rkey;
  }
  if (lie == "data-rkey" || lie == "data-twice") {
    data.emplace(options);
    peer.add_data_connection(data->id.get());
    if (const auto event = data->join(token, options.timeout);
        event->event != RDMA_CM_EVENT_ESTABLISHED)
      throw Error("the data connection", rejection(event));
  }
  if (lie == "data-twice" || lie == "data-unwanted") {
    const uint32_t nobody = // the CM knows those that are connected
        peer.requests.holder->qp->qp_num ^ 0x800000;
    return rejection(DataId(options).join(token, options.timeout, nobody));
  }
  if (const auto found = client_lies.find(lie); found != client_lies.end())
    found->second(peer);
  // A lie may arrive before the ready-to-use message does. A server that drops us then, rejects us.
  const auto event =
      next_cm_event(channel.get(), RDMA_CM_EVENT_DISCONNECTED, options.timeout)->event;
  return event == RDMA_CM_EVENT_REJECTED ? name_of(RDMA_CM_EVENT_DISCONNECTED) : name_of(event);
}

// ---- the server

using Answer = std::function<void(Peer &, const Header &)>; // answers a request with this header

// One without bytes that is right, but for what `change` makes of it.
Answer answer(const std::function<void(Header &)> &change) {
  return [=](Peer &peer, const Header &asked) {
    Header header{.length = 0, .id = asked.id, .kind = Kind::response};
    change(header);
    peer.send(0, header);
  };
}

Answer twice(Kind kind) {
  return [=](Peer &peer, const Header &asked) {
    for (uint32_t slot = 0; slot < 2; ++slot)
      peer.send(slot, {.length = 0, .id = asked.id, .kind = kind});
  };
}

const std::map<std::string, Answer> server_lies = {
    {"kind", answer([](Header &header) { header.kind = static_cast<Kind>(99); })},
    {"request", answer([](Header &header) { header.kind = Kind::request; })},
    {"pong", // more than there can be pings: after ten without a pong the client leaves
     [](Peer &peer, const Header &) {
       for (uint32_t slot = 0; slot < 20; ++slot)
         peer.put(slot, {.kind = Kind::pong});
       peer.write({.first = 0, .count = 20}, 20 * 64);
     }},
    {"slot", answer([](Header &header) { header.id += 1; })},
    {"no-slot", answer([](Header &header) { header.id |= 0xffffffff; })},
    {"generation", answer([](Header &header) { header.id += uint64_t{1} << 32; })},
    {"worker", answer([](Header &header) { header.id += uint64_t{1} << 48; })},
    {"no-worker", answer([](Header &header) { header.id |= uint64_t{0xffff} << 48; })},
    {"long", answer([](Header &header) { header.kind = Kind::long_response; })},
    {"length", answer([](Header &header) { header.length = 49; })},
    {"huge", answer([](Header &header) { header.length = 0xffffffff; })},
    {"max-response",
     [](Peer &peer, const Header &asked) {
       const std::vector<std::byte> more(asked.max_response + 1);
       peer.send(0, {.length = asked.max_response + 1, .id = asked.id, .kind = Kind::response},
                 more);
     }},
    {"beyond", [](Peer &peer, const Header &) { peer.write({.first = 2047, .count = 2}, 0); }},
    {"credits", [](Peer &peer, const Header &) { peer.give_credit(1000); }},
    {"twice", twice(Kind::response)},
    {"long-twice", twice(Kind::long_response)},
    {"long-huge",
     [](Peer &peer, const Header &asked) {
       peer.send(0, {.length = 65, .id = asked.id, .kind = Kind::long_response});
     }},
    {"long-in-slots", answer([](Header &) {})},
};

// @param channel of a listener
// @return nothing if the client has left before it asked for anything, as a slow one does: the lie
//         answers no ping
std::optional<std::string> one_lie_to_a_client(const std::string &lie, rdma_event_channel *channel,
                                               const CmOptions &options) {
  unique_cm_event asked = wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.wait);
  const unique_cm_id id(asked->id);
  Rejection rejection{};
  const auto hello = hello_in(private_data(*asked), rejection);
  asked.reset();
  unique_cm_id data; // goes after its queue pair
  Peer peer(id.get(), shape);
  peer.their_address = hello.value().address;
  peer.their_rkey = hello->rkey;
  WelcomeBytes bytes = to_bytes(Welcome{.rejection = Rejection::none,
                                        .window = lie == "no-window" ? 0U : 4U,
                                        .address = peer.address(),
                                        .rkey = peer.theirs->rkey,
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
  if (hello->shape.long_responses > 0) {
    data.reset(wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.timeout)->id);
    peer.add_data_connection(data.get());
    check_errno(rdma_accept(data.get(), &parameters), "rdma_accept");
    wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  }
  if (lie != "welcome" && lie != "no-window") {
    const bool is_silent = lie == "silence"; // it lives, and answers no request
    Incoming incoming(peer, is_silent);
    const auto request = incoming.next();
    if (!request)
      return std::nullopt;
    if (is_silent) {
      while (incoming.next())
        ;
      return name_of(RDMA_CM_EVENT_DISCONNECTED);
    }
    server_lies.at(lie)(peer, *request);
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
  for (std::string lie; std::getline(in, lie, ',');) {
    std::optional<std::string> end;
    while (!end)
      end = one_lie_to_a_client(lie, channel.get(), options);
    std::printf("%s: %s\n", lie.c_str(), end->c_str());
  }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_slots);
}

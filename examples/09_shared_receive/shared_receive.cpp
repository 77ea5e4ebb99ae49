// SPDX-License-Identifier: MIT
// 09_shared_receive: one server, many clients, and one receive queue for all of them. An event
// tells when it runs low, and credits see to it that it never runs dry.
//
// Lesson:  lessons/09_shared_receive.md
// Needs:   an RDMA device with shared receive queues on both sides (./lab doctor says where yours
//          comes from)
// Run:     ./lab run 09_shared_receive
// By hand: shared_receive                  the server, which receives
//          shared_receive --host ADDRESS   the clients: many connections from one process

#include "clients.hpp"
#include "device_events.hpp"
#include "pool.hpp"
#include "receive_memory.hpp"
#include "sleeping.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

using namespace rdmacommon;

// ---- the clients

void Clients::send_what_it_may(Connection &one) {
  const auto index = static_cast<size_t>(&one - connections_.data());
  while (one.sent < settings_.messages && one.credits > 0 &&
         one.sent - std::min(one.completed, one.answered) < window) {
    Message &message = outgoing_[index * window + one.sent % window];
    fill(message, one.sent, settings_.messages - one.sent - 1);
    ibv_sge what = piece(mr_.get(), &message, sizeof message);
    post_srq_recv(srq_.get(), {}); // for the answer, which has no data
    post_send(one.qp.get(), {.wr_id = message_request,
                             .sg_list = &what,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED});
    ++one.sent;
    --one.credits;
  }
}

// ---- the server

namespace {

constexpr uint32_t answers = 2 * window;      // answers to one client that may be under way
constexpr uint64_t answer_request = 1U << 16; // no receive has this number

struct Client {
  unique_qp qp;
  std::optional<Exchange> exchange; // until it is gone
  uint32_t next = 0, left = 0;      // messages: which comes now, and how many after it
  uint32_t credits = 1;             // messages that it may send before the next answer
  bool finished = false;

  int fd() const { return exchange && !finished ? exchange->fd() : -1; }
};

class Server {
public:
  Server(const PairOptions &options, const Settings &settings)
      : options_(options), settings_(settings), port_(open_port(options)),
        pd_(alloc_pd(port_.context.get())), channel_(create_comp_channel(port_.context.get())),
        cq_(create_cq(port_.context.get(),
                      static_cast<int>(settings.pool + settings.clients * answers),
                      channel_.get())),
        pool_(pd_.get(), settings.pool, settings.limit), events_(port_.context.get()) {}

  // Measures the receives that let each client have a window of messages under way, if not all of
  // them at a time.
  void measure() const {
    ::measure(port_, pd_.get(), settings_.clients, settings_.clients * window, false);
    ::measure(port_, pd_.get(), settings_.clients, settings_.pool, true);
  }

  void accept() {
    pool_.refill(); // before the first client learns of a QP
    Listener listener(options_);
    for (uint32_t i = 0; i < settings_.clients; ++i) {
      // [accept]
      clients_.push_back({.qp = create_qp(pd_.get(), cq_.get(), pool_.srq(), answers),
                          .exchange = listener.accept()});
      Client &client = clients_.back();
      by_qpn_[client.qp->qp_num] = i;
      to_init(client.qp.get(), port_);
      try {
        connect(client.qp.get(), port_, *client.exchange, options_);
        // A message that finds no receive is sent again after 82 ms (code 26).
        ibv_qp_attr attr{.min_rnr_timer = 26};
        check_rc(ibv_modify_qp(client.qp.get(), &attr, IBV_QP_MIN_RNR_TIMER),
                 "ibv_modify_qp(RNR timer)");
        // [accept]
      } catch (const Error &error) {
        end(client, error.what());
      }
    }
  }

  void serve() {
    // [serve]
    const auto busy = [](const Client &client) { return client.fd() >= 0; };
    while (std::any_of(clients_.begin(), clients_.end(), busy)) {
      if (work())
        continue;
      check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
      if (!work())
        sleep();
    }
    // [serve]
    uint32_t finished = 0, messages = 0;
    for (const Client &client : clients_)
      if (client.finished)
        ++finished, messages += client.next;
    std::printf("%u clients have finished, with %u messages\n", finished, messages);
    std::printf("%u limit events: the receives ran low\n", limit_events_);
    if (gone_ > 0)
      std::printf("%u clients have gone without a word\n", gone_);
    const auto ended = std::count_if(clients_.begin(), clients_.end(),
                                     [](const Client &client) { return !client.exchange; });
    if (ended > 0)
      std::printf("last WQE reached: reported for %zu of the %zu queue pairs that were ended\n",
                  events_.wait_for_last_wqes(static_cast<size_t>(ended)),
                  static_cast<size_t>(ended));
  }

private:
  // [work]
  // Takes the completions that have come. Posts receives before an answer allows more messages.
  bool work() {
    std::array<ibv_wc, 16> batch;
    const size_t count = poll_batch(cq_.get(), batch);
    std::vector<Client *> due;
    for (const ibv_wc &wc : std::span(batch).first(count)) {
      Client &client = clients_.at(by_qpn_.at(wc.qp_num)); // valid in a failed one, too
      if (client.exchange)
        try {
          if (take(client, wc))
            due.push_back(&client);
        } catch (const Error &error) {
          end(client, error.what());
        }
      if (wc.wr_id != answer_request)
        pool_.put_back(wc.wr_id);
    }
    if (!due.empty())
      refill_if_low();
    for (Client *client : due)
      if (client->exchange)
        try {
          answer(*client);
        } catch (const Error &error) {
          end(*client, error.what());
        }
    return count > 0;
  }
  // [work]

  void refill_if_low() {
    if (events_.limit_reached()) {
      pool_.refill();
      ++limit_events_;
    }
  }

  // [take]
  // Returns true for a message, which the server must answer.
  bool take(Client &client, const ibv_wc &wc) {
    check_wc(wc, wc.wr_id == answer_request ? "the answer" : "the receive");
    if (wc.wr_id == answer_request)
      return false;
    if (client.credits == 0)
      throw Error("its message", "it had no credit for it");
    --client.credits;
    client.left = checked(wc, pool_[wc.wr_id], client.next++);
    return true;
  }
  // [take]

  // [answer]
  // Each client has a credit, or gets one with its next answer: the limit is enough for that. A
  // client with more to send gets up to half of the rest of the limit. So all credits together are
  // never more than the limit.
  void answer(Client &client) {
    uint32_t promised = 0;
    for (const Client &other : clients_)
      promised += other.exchange ? std::max(other.credits, 1U) : 0;
    const uint32_t spare = pool_.limit() - promised;
    const uint32_t one = client.credits == 0 ? 1 : 0;
    const uint32_t lacks =
        client.left > client.credits + one ? client.left - client.credits - one : 0;
    const uint32_t grant = one + std::min(lacks, spare / 2);
    client.credits += grant;
    post_send(client.qp.get(), {.wr_id = answer_request,
                                .opcode = IBV_WR_SEND_WITH_IMM,
                                .send_flags = IBV_SEND_SIGNALED,
                                .imm_data = htonl(grant)});
  }
  // [answer]

  void sleep() {
    if (!sleep_until_something(channel_.get(), port_.context->async_fd, clients_, options_.timeout,
                               [this](Client &client) { receive_done(client); }))
      for (Client &client : clients_)
        if (client.fd() >= 0)
          end(client, "has been silent for too long");
    refill_if_low();
  }

  void receive_done(Client &client) {
    try {
      client.exchange->receive_done(std::chrono::milliseconds(0));
      if (client.left > 0)
        throw Error("its 'done'", "it has not sent all");
      client.finished = true;
    } catch (const Error &) {
      end(client, "");
    }
  }

  // Ends one connection. The other clients do not notice.
  void end(Client &client, const std::string &why) {
    ibv_qp_attr attr{.qp_state = IBV_QPS_ERR};
    check_rc(ibv_modify_qp(client.qp.get(), &attr, IBV_QP_STATE), "ibv_modify_qp(ERR)");
    client.exchange.reset();
    if (why.empty())
      ++gone_;
    else
      std::printf("client %zu: %s\n", by_qpn_.at(client.qp->qp_num),
                  why.substr(0, why.find('\n')).c_str());
  }

  const PairOptions &options_;
  const Settings &settings_;
  Port port_;
  unique_pd pd_;
  unique_comp_channel channel_;
  unique_cq cq_;
  Pool pool_;
  DeviceEvents events_;
  std::vector<Client> clients_;
  std::map<uint32_t, size_t> by_qpn_; // indexes into clients_
  uint32_t limit_events_ = 0, gone_ = 0;
};

void shared_receive(int argc, char **argv) {
  CommandLine line{"Receives the messages of many queue pairs with one receive queue."};
  PairOptions options{line};
  Settings settings;
  line.add("--clients", settings.clients, "how many connections, on both sides the same [16]", 1,
           256);
  line.add("--messages", settings.messages, "client: how many on each connection [100]", 1,
           1'000'000);
  line.add("--pool", settings.pool, "server: how many receives it has for all clients [64]", 2,
           4096);
  line.add("--limit", settings.limit, "server: posts them again if fewer are left than these [32]",
           1, 2048);
  line.parse(argc, argv);
  if (!options.is_server())
    return Clients(options, settings).run();
  if (settings.limit < settings.clients || settings.limit > settings.pool / 2)
    line.reject("--limit", "it must be from --clients to half of --pool");
  Server server(options, settings);
  server.measure();
  server.accept();
  server.serve();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, shared_receive);
}

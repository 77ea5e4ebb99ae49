// SPDX-License-Identifier: MIT
// The clients of 09_shared_receive: many connections of one process, which has one receive queue
// for them as well.
#pragma once

#include "pool.hpp"
#include "sleeping.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

struct Settings {
  uint32_t clients = 16, messages = 100, pool = 64, limit = 32;
};

constexpr uint32_t window = 16; // messages of one client's that may be without an answer

class Clients {
public:
  Clients(const rdmacommon::PairOptions &options, const Settings &settings)
      : options_(options), settings_(settings), port_(rdmacommon::open_port(options)),
        pd_(rdmacommon::alloc_pd(port_.context.get())), outgoing_(settings.clients * window),
        mr_(rdmacommon::reg_mr(pd_.get(), outgoing_.data(), outgoing_.size() * sizeof(Message), 0)),
        channel_(rdmacommon::create_comp_channel(port_.context.get())),
        cq_(rdmacommon::create_cq(port_.context.get(), static_cast<int>(2 * outgoing_.size()),
                                  channel_.get())),
        srq_(create_srq(pd_.get(), static_cast<uint32_t>(outgoing_.size()))) {
    for (uint32_t i = 0; i < settings.clients; ++i) {
      Connection &one = connections_.emplace_back();
      one.qp = create_qp(pd_.get(), cq_.get(), srq_.get(), window);
      by_qpn_[one.qp->qp_num] = i;
      rdmacommon::to_init(one.qp.get(), port_);
      rdmacommon::connect(one.qp.get(), port_,
                          one.exchange.emplace(options, rdmacommon::Where::here()), options);
    }
  }

  void run() {
    for (Connection &one : connections_)
      send_what_it_may(one);
    const auto is_busy = [this](const Connection &one) {
      return one.exchange && std::min(one.answered, one.completed) < settings_.messages;
    };
    while (std::any_of(connections_.begin(), connections_.end(), is_busy)) {
      std::array<ibv_wc, 16> batch;
      size_t count = rdmacommon::poll_batch(cq_.get(), batch);
      if (count == 0) {
        rdmacommon::check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
        count = rdmacommon::poll_batch(cq_.get(), batch);
      }
      if (count == 0)
        sleep();
      for (const ibv_wc &wc : std::span(batch).first(count))
        done(connections_.at(by_qpn_.at(wc.qp_num)), wc);
    }
    for (Connection &one : connections_)
      if (one.exchange)
        one.exchange->send_done();
    for (Connection &one : connections_)
      if (one.exchange)
        one.exchange->finish();
    if (broken_ > 0) {
      std::printf("%u of %u connections have broken, the first with this:\n", broken_,
                  settings_.clients);
      throw std::runtime_error(why_);
    }
    std::printf("%u clients have sent %u messages each, and have an answer to each\n",
                settings_.clients, settings_.messages);
  }

private:
  struct Connection {
    rdmacommon::unique_qp qp;
    std::optional<rdmacommon::Exchange> exchange; // until it breaks
    uint32_t sent = 0, completed = 0, answered = 0;
    uint32_t credits = 1;

    int fd() const { return exchange ? exchange->fd() : -1; }
  };

  static constexpr const char *closed = "the server has closed the connection";
  void sleep() {
    const auto heard = [this](Connection &one) { break_off(one, closed); };
    if (!sleep_until_something(channel_.get(), -1, connections_, options_.timeout, heard))
      throw rdmacommon::Error("an answer", "none has come in time");
  }

  void break_off(Connection &one, const std::string &why) {
    if (broken_++ == 0)
      why_ = why;
    one.exchange.reset(); // the server sees that
  }

  void send_what_it_may(Connection &one); // in shared_receive.cpp

  void done(Connection &one, const ibv_wc &wc) {
    if (!one.exchange)
      return; // a request flushed after the first failure
    try {
      rdmacommon::check_wc(wc, wc.wr_id == message_request ? "the message" : "the answer");
      if (wc.wr_id == message_request) {
        ++one.completed;
      } else {
        const uint32_t grant = (wc.wc_flags & IBV_WC_WITH_IMM) ? ntohl(wc.imm_data) : UINT32_MAX;
        if (wc.byte_len != 0 || grant > max_credits - one.credits || one.answered == one.sent)
          throw rdmacommon::Error("the answer", "its number is impossible");
        one.credits += grant;
        ++one.answered;
      }
      send_what_it_may(one);
    } catch (const rdmacommon::Error &error) {
      // A server that ends a client closes this connection, too. This client learns that only when
      // it sleeps, and its requests may fail before.
      pollfd file{.fd = one.fd(), .events = POLLIN, .revents = 0};
      break_off(one, poll(&file, 1, 0) > 0 ? closed : error.what());
    }
  }

  static constexpr uint64_t message_request = 1;
  static constexpr uint32_t max_credits = 1U << 16;

  const rdmacommon::PairOptions &options_;
  const Settings &settings_;
  rdmacommon::Port port_;
  rdmacommon::unique_pd pd_;
  std::vector<Message> outgoing_; // a window for each connection
  rdmacommon::unique_mr mr_;
  rdmacommon::unique_comp_channel channel_;
  rdmacommon::unique_cq cq_;
  rdmacommon::unique_srq srq_;
  std::vector<Connection> connections_;
  std::map<uint32_t, size_t> by_qpn_;
  uint32_t broken_ = 0; // connections
  std::string why_;     // the first of them
};

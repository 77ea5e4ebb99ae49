// SPDX-License-Identifier: MIT
// An opponent of the shared client. Each process has a connection of its own. The server has one completion queue for all
// connections, as in lesson 13. It takes all requests that have come, and answers each client by one post.
//
// Lesson:  lessons/20_measure.md
// By hand: own_connections --connections 4      the server, for as many
//          own_connections --host ADDRESS       four processes, one connection each

#include "load_processes.hpp"
#include "own_connection.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <unordered_map>
#include <utility>

using namespace rdmacommon;
using namespace shared_client;

namespace {

// [own-server]
class Server {
public:
  Server(const CmOptions &options, uint32_t connections)
      : options_(options), connections_(connections), events_(create_event_channel()),
        listener_(cm_listen(events_.get(), options, static_cast<int>(connections))) {}

  // Until all clients have come and gone.
  void serve_all() {
    accept(*wait_for_cm_event(events_.get(), RDMA_CM_EVENT_CONNECT_REQUEST, options_.wait));
    while (gone_ < connections_) {
      const std::span done = completions_->take();
      for (const ibv_wc &wc : done)
        take(wc);
      for (Client *client : to_post_) {
        client->end.receiver.repost(); // before it learns that it may send more
        client->end.queue.post();
        client->is_to_post = false;
      }
      to_post_.clear();
      if (done.empty() && completions_->sleep(events_->fd, options_.wait, "the clients"))
        take_cm_events();
    }
  }

private:
  struct Client {
    Client(unique_cm_id its, ibv_cq *cq) : id(std::move(its)), end(id.get(), cq) {}
    unique_cm_id id;
    End end;
    bool is_to_post = false, is_closing = false;
    uint32_t flushed = 0; // receives
  };

  void take(const ibv_wc &wc) {
    const auto found = clients_.find(wc.qp_num);
    if (found == clients_.end())
      return;
    Client &client = *found->second;
    if (!client.is_closing)
      try {
        return answer(client, wc);
      } catch (const Error &error) { // the others are served on
        std::fprintf(stderr, "a client: %s\n", error.what());
        close(client);
      }
    // Another queue pair can get this number. So all completions of this one come first.
    client.flushed += wc.wr_id == 0; // a receive's
    if (client.flushed == slots) {
      clients_.erase(found);
      ++gone_;
    }
  }

  void answer(Client &client, const ibv_wc &wc) {
    check_wc(wc, "a request or a receive");
    if ((wc.opcode & IBV_WC_RECV) == 0)
      return client.end.queue.completed(wc);
    const uint32_t slot = client.end.receiver.received(wc).first;
    const std::span request = client.end.in(slot).first(std::min(wc.byte_len, slot_size));
    std::array<std::byte, slot_size> copy; // the client can change the request at any moment
    std::ranges::copy(request, copy.begin());
    const size_t length =
        serve(std::span(copy).first(request.size()), client.end.out(slot).first(slot_size));
    client.end.add(slot, std::min<size_t>(length, slot_size));
    if (!std::exchange(client.is_to_post, true))
      to_post_.push_back(&client);
  }

  void take_cm_events() {
    while (const unique_cm_event event = take_cm_event(events_.get()))
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        accept(*event);
      else if (event->event == RDMA_CM_EVENT_DISCONNECTED)
        close(*clients_.at(event->id->qp->qp_num));
  }

  void accept(const rdma_cm_event &request) {
    unique_cm_id id(request.id);
    if (!completions_) // the first request says which device it is
      completions_.emplace(id->verbs, connections_);
    auto client = std::make_unique<Client>(std::move(id), completions_->get());
    client->end.set_peer(request.param.conn);
    const Description mine = client->end.description();
    rdma_conn_param answer = parameters(mine);
    check_errno(rdma_accept(client->id.get(), &answer), "rdma_accept");
    clients_.emplace(client->id->qp->qp_num, std::move(client));
  }

  void close(Client &client) {
    if (!std::exchange(client.is_closing, true))
      check_errno(rdma_disconnect(client.id.get()), "rdma_disconnect"); // flushes its receives
  }

  const CmOptions &options_;
  const uint32_t connections_;
  uint32_t gone_ = 0;
  unique_event_channel events_;
  unique_cm_id listener_;
  std::optional<Completions> completions_;                        // of all clients
  std::unordered_map<uint32_t, std::unique_ptr<Client>> clients_; // by their QP numbers
  std::vector<Client *> to_post_;
};
// [own-server]

// [asker]
// One process. A slot is free again when its response has come.
class Asker {
public:
  Asker(const CmOptions &options, const ProcessLoad &askers)
      : options_(options), askers_(askers), events_(create_event_channel()),
        id_(create_cm_id(events_.get())) {
    cm_resolve(id_.get(), events_.get(), options);
    completions_.emplace(id_->verbs, 1);
    end_.emplace(id_.get(), completions_->get());
    const Description mine = end_->description();
    rdma_conn_param request = parameters(mine);
    check_errno(rdma_connect(id_.get(), &request), "rdma_connect");
    end_->set_peer(
        wait_for_cm_event(events_.get(), RDMA_CM_EVENT_ESTABLISHED, options.timeout)->param.conn);
  }

  void ask_all(Asking &asking) {
    while (answered_ < askers_.requests) {
      for (; asked_ < askers_.requests && asked_ - answered_ < askers_.in_flight &&
             !is_taken_.at(asked_ % slots) && end_->queue.room() > 0;
           ++asked_) {
        const uint32_t slot = asked_ % slots;
        asking.asks(asked_);
        make_request(end_->out(slot).first(askers_.size), askers_.size, 0, asked_);
        end_->add(slot, askers_.size);
        is_taken_.at(slot) = true;
      }
      end_->queue.post(); // all of them in one call
      take_responses(asking);
    }
  }

  void disconnect() {
    check_errno(rdma_disconnect(id_.get()), "rdma_disconnect");
    wait_for_cm_event(events_.get(), RDMA_CM_EVENT_DISCONNECTED, options_.timeout);
  }

private:
  void take_responses(Asking &asking) {
    const std::span done = completions_->take();
    if (done.empty() && completions_->sleep(events_->fd, options_.timeout, "a response"))
      if (const unique_cm_event event = take_cm_event(events_.get()))
        check_cm_event(*event, RDMA_CM_EVENT_ESTABLISHED); // names what has come
    for (const ibv_wc &wc : done) {
      check_wc(wc, "a request or a receive");
      if ((wc.opcode & IBV_WC_RECV) == 0) {
        end_->queue.completed(wc);
        continue;
      }
      const uint32_t slot = end_->receiver.received(wc).first;
      const auto response = end_->in(slot).first(std::min(wc.byte_len, slot_size));
      if (!is_taken_.at(slot) || !is_response(response, end_->out(slot).first(askers_.size)))
        throw Error("a response", "it is not to this request");
      is_taken_.at(slot) = false;
      asking.answered(slot); // there are as many slots as it can have under way
      ++answered_;
    }
    end_->receiver.repost();
  }

  const CmOptions &options_;
  const ProcessLoad &askers_;
  unique_event_channel events_;
  unique_cm_id id_;
  std::optional<Completions> completions_;
  std::optional<End> end_;
  std::array<bool, slots> is_taken_{};
  uint32_t asked_ = 0, answered_ = 0;
};
// [asker]

void own_connections(int argc, char **argv) {
  CommandLine line{"Processes that each ask by a connection of their own; and the server."};
  const CmOptions options{line, "the server; without it, be the server"};
  ProcessLoad askers;
  uint32_t connections = 4;
  line.add("--connections", connections, "the server ends after so many [4]", 1, 100);
  askers.add_to(line);
  line.parse(argc, argv);
  if (options.is_server())
    return Server(options, connections).serve_all();
  run_askers(askers, [&](uint32_t, Asking &asking) {
    Asker asker(options, askers);
    asking.ready();
    asker.ask_all(asking);
    asking.done();
    asker.disconnect();
  });
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, own_connections);
}

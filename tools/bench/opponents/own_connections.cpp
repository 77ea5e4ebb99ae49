// SPDX-License-Identifier: MIT
// An opponent of the shared client. Each process has a connection of its own. The server has one
// completion queue for all connections, as in lesson 13. It takes all requests that have come, and
// answers each client by one post.
//
// Lesson:  lessons/29_results.md
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

namespace {

class Server {
public:
  Server(const CmOptions &options, uint32_t connections, Looks &looks)
      : options_(options), connections_(connections), looks_(looks),
        events_(create_event_channel()),
        listener_(cm_listen(events_.get(), options, static_cast<int>(connections))) {}

  // Until all clients have come and gone.
  void serve_all() {
    accept(*wait_for_cm_event(events_.get(), RDMA_CM_EVENT_CONNECT_REQUEST, options_.wait));
    while (gone_ < connections_) {
      const std::span done = completions_->take();
      for (const ibv_wc &wc : done)
        take(wc);
      for (Client *client : to_post_) {
        client->connection.receives.repost(); // before it learns that it may send more
        client->connection.queue.post();
        client->is_to_post = false;
      }
      to_post_.clear();
      if (done.empty() && completions_->sleep(events_->fd, options_.wait, "the clients"))
        take_cm_events();
    }
  }

private:
  struct Client {
    Client(unique_cm_id its, ibv_cq *cq) : id(std::move(its)), connection(id.get(), cq) {}
    unique_cm_id id;
    OwnConnection connection;
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
      return client.connection.queue.completed(wc);
    const uint32_t slot = client.connection.slot_of(wc);
    const std::span request = client.connection.in(slot).first(std::min(wc.byte_len, slot_size));
    std::array<std::byte, slot_size> copy; // the client can change the request at any moment
    std::ranges::copy(request, copy.begin());
    const size_t length =
        serve(std::span(copy).first(request.size()), client.connection.out(slot).first(slot_size));
    client.connection.add(slot, std::min<size_t>(length, slot_size));
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
      completions_.emplace(id->verbs, connections_, looks_);
    auto client = std::make_unique<Client>(std::move(id), completions_->get());
    client->connection.set_peer(request.param.conn);
    const Description mine = client->connection.description();
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
  Looks &looks_;
  uint32_t gone_ = 0;
  unique_event_channel events_;
  unique_cm_id listener_;
  std::optional<Completions> completions_;                        // completions of all clients
  std::unordered_map<uint32_t, std::unique_ptr<Client>> clients_; // by their QP numbers
  std::vector<Client *> to_post_;
};

// One process. A slot is free again when its response has come.
class LoadClient {
public:
  LoadClient(const CmOptions &options, const ProcessLoad &load, Looks &looks)
      : options_(options), load_(load), events_(create_event_channel()),
        id_(create_cm_id(events_.get())) {
    cm_resolve(id_.get(), events_.get(), options);
    completions_.emplace(id_->verbs, 1, looks);
    connection_.emplace(id_.get(), completions_->get());
    const Description mine = connection_->description();
    rdma_conn_param request = parameters(mine);
    check_errno(rdma_connect(id_.get(), &request), "rdma_connect");
    connection_->set_peer(
        wait_for_cm_event(events_.get(), RDMA_CM_EVENT_ESTABLISHED, options.timeout)->param.conn);
  }

  void send_requests(Progress &progress) {
    while (received_ < load_.requests) {
      for (; sent_ < load_.requests && sent_ - received_ < load_.in_flight &&
             !is_taken_.at(sent_ % slots) && connection_->queue.room() > 0;
           ++sent_) {
        const uint32_t slot = sent_ % slots;
        progress.sends(sent_);
        make_request(connection_->out(slot).first(load_.size), load_.size, 0, sent_);
        connection_->add(slot, load_.size);
        is_taken_.at(slot) = true;
      }
      connection_->queue.post(); // all of them in one call
      take_responses(progress);
    }
  }

  void disconnect() {
    check_errno(rdma_disconnect(id_.get()), "rdma_disconnect");
    wait_for_cm_event(events_.get(), RDMA_CM_EVENT_DISCONNECTED, options_.timeout);
  }

private:
  void take_responses(Progress &progress) {
    const std::span done = completions_->take();
    if (done.empty() && completions_->sleep(events_->fd, options_.timeout, "a response"))
      if (const unique_cm_event event = take_cm_event(events_.get()))
        check_cm_event(*event, RDMA_CM_EVENT_ESTABLISHED); // names what has come
    for (const ibv_wc &wc : done) {
      check_wc(wc, "a request or a receive");
      if ((wc.opcode & IBV_WC_RECV) == 0) {
        connection_->queue.completed(wc);
        continue;
      }
      const uint32_t slot = connection_->slot_of(wc);
      const auto response = connection_->in(slot).first(std::min(wc.byte_len, slot_size));
      if (!is_taken_.at(slot) || !is_response(response, connection_->out(slot).first(load_.size)))
        throw Error("a response", "it is not to this request");
      is_taken_.at(slot) = false;
      progress.received(slot); // there are as many slots as it can have under way
      ++received_;
    }
    connection_->receives.repost();
  }

  const CmOptions &options_;
  const ProcessLoad &load_;
  unique_event_channel events_;
  unique_cm_id id_;
  std::optional<Completions> completions_;
  std::optional<OwnConnection> connection_;
  std::array<bool, slots> is_taken_{};
  uint32_t sent_ = 0, received_ = 0;
};

void own_connections(int argc, char **argv) {
  CommandLine line{
      "Processes that send requests, each by a connection of its own; and the server."};
  const CmOptions options{line, "the server; without it, be the server"};
  ProcessLoad load;
  Looks looks{line};
  uint32_t connections = 4;
  line.add("--connections", connections, "the server ends after so many [4]", 1, 100);
  load.parse(line, argc, argv);
  if (options.is_server())
    return Server(options, connections, looks).serve_all();
  run_processes(load, [&](uint32_t, Progress &progress) {
    LoadClient client(options, load, looks);
    progress.ready();
    client.send_requests(progress);
    progress.done();
    client.disconnect();
  });
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, own_connections);
}

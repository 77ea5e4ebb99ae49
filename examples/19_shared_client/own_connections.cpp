// An opponent of the shared client. Each process has a connection of its own. The server has one completion queue for all
// connections, as in lesson 13. It takes all requests that have come, and answers each client by one post.
//
// Lesson:  lessons/20_measure.md
// By hand: own_connections --connections 4      the server, for as many
//          own_connections --host ADDRESS       four processes, one connection each

#include "many_askers.hpp"
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
    std::array<ibv_wc, 64> done;
    while (gone_ < connections_) {
      size_t count = 0;
      if (cq_ && (count = poll_batch(cq_.get(), done)) == 0) {
        check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
        count = poll_batch(cq_.get(), done); // no event tells of what came before
      }
      for (const ibv_wc &wc : std::span(done).first(count))
        take(wc);
      for (Client *client : std::exchange(to_post_, {})) {
        client->end.receiver.repost(); // before it learns that it may send more
        client->end.queue.post();
        client->is_to_post = false;
      }
      if (count == 0)
        wait();
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
    // Another queue pair can get this number. So all completions of this one come first.
    if (client.is_closing) {
      if (++client.flushed == slots) {
        clients_.erase(found);
        ++gone_;
      }
      return;
    }
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

  void wait() {
    if (!cq_) { // nobody has come yet
      accept(*wait_for_cm_event(events_.get(), RDMA_CM_EVENT_CONNECT_REQUEST, options_.wait));
      return;
    }
    if (!sleep(channel_.get(), events_->fd, options_.wait))
      throw Error("the clients", "they say nothing any more", Where::here());
    while (const unique_cm_event event = take_cm_event(events_.get()))
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        accept(*event);
      else if (event->event == RDMA_CM_EVENT_DISCONNECTED)
        close(event->id);
  }

  void accept(const rdma_cm_event &request) {
    unique_cm_id id(request.id);
    if (!cq_) {
      channel_ = create_comp_channel(id->verbs);
      cq_.reset(new_cq(id->verbs, channel_.get(), connections_));
    }
    auto client = std::make_unique<Client>(std::move(id), cq_.get());
    client->end.set_peer(request.param.conn);
    const Description mine = client->end.description();
    rdma_conn_param answer = parameters(mine);
    check_errno(rdma_accept(client->id.get(), &answer), "rdma_accept");
    clients_.emplace(client->id->qp->qp_num, std::move(client));
  }

  void close(rdma_cm_id *id) {
    clients_.at(id->qp->qp_num)->is_closing = true;
    check_errno(rdma_disconnect(id), "rdma_disconnect"); // flushes its receives
  }

  const CmOptions &options_;
  const uint32_t connections_;
  uint32_t gone_ = 0;
  unique_event_channel events_;
  unique_cm_id listener_;
  unique_comp_channel channel_;
  unique_cq cq_;                                                  // of all clients
  std::unordered_map<uint32_t, std::unique_ptr<Client>> clients_; // by their QP numbers
  std::vector<Client *> to_post_;
};
// [own-server]

// [asker]
// One process. A slot is free again when its response has come.
class Asker {
public:
  Asker(const CmOptions &options, const Askers &askers)
      : options_(options), askers_(askers), events_(create_event_channel()),
        id_(create_cm_id(events_.get())) {
    cm_resolve(id_.get(), events_.get(), options);
    channel_ = create_comp_channel(id_->verbs);
    cq_.reset(new_cq(id_->verbs, channel_.get(), 1));
    end_.emplace(id_.get(), cq_.get());
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
    size_t count = poll_batch(cq_.get(), done_);
    if (count == 0) {
      check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
      count = poll_batch(cq_.get(), done_);
    }
    if (count == 0) {
      if (!sleep(channel_.get(), events_->fd, options_.timeout))
        throw Error("a response", "it does not come", Where::here());
      if (const unique_cm_event event = take_cm_event(events_.get()))
        check_cm_event(*event, RDMA_CM_EVENT_ESTABLISHED); // names what has come
    }
    for (const ibv_wc &wc : std::span(done_).first(count)) {
      check_wc(wc, "a request or a receive");
      if ((wc.opcode & IBV_WC_RECV) == 0) {
        end_->queue.completed(wc);
        continue;
      }
      const uint32_t slot = end_->receiver.received(wc).first;
      const auto response = end_->in(slot).first(std::min(wc.byte_len, slot_size));
      if (!is_taken_.at(slot) || !is_response(response, end_->out(slot).first(askers_.size)))
        throw Error("a response", "it is not to this request", Where::here());
      is_taken_.at(slot) = false;
      asking.answered(slot); // there are as many slots as it can have under way
      ++answered_;
    }
    end_->receiver.repost();
  }

  const CmOptions &options_;
  const Askers &askers_;
  unique_event_channel events_;
  unique_cm_id id_;
  unique_comp_channel channel_;
  unique_cq cq_;
  std::optional<End> end_;
  std::array<bool, slots> is_taken_{};
  uint32_t asked_ = 0, answered_ = 0;
  std::array<ibv_wc, 64> done_{};
};
// [asker]

void own_connections(int argc, char **argv) {
  CommandLine line{"Processes that each ask by a connection of their own; and the server."};
  const CmOptions options{line, "the server; without it, be the server"};
  Askers askers;
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

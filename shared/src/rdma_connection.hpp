// SPDX-License-Identifier: MIT
// The RDMA resources of one connection, of either side: what is made when the device is known, and
// goes with it.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rdmashared {

constexpr uint32_t send_depth = 256;  // requests in a send queue
constexpr uint32_t inline_bytes = 64; // a slot of the smallest size
constexpr uint8_t ack_timeout = 17;   // 4.096 us << 17 = 537 ms, and retry_count more times that

// [connection]
// The queue pair of one rdma_cm id, and its send queue. A connection has one for requests and
// answers, and perhaps one for data.
struct QueuePair {
  QueuePair(rdma_cm_id *id, ibv_pd *pd, ibv_cq *cq, uint32_t receives)
      : holder(rdmacommon::create_cm_qp(id, pd, cq,
                                        {.max_send_wr = send_depth,
                                         .max_recv_wr = std::max(receives, 1U),
                                         .max_send_sge = 1,
                                         .max_recv_sge = 1,
                                         .max_inline_data = inline_bytes})),
        queue(id->qp, send_depth) {}
  ibv_qp *get() const { return holder->qp; }

  rdmacommon::unique_cm_qp holder;
  rdmacommon::SendQueue queue;
};

// What is the same on both sides. The protection domain is this connection's own: no key of another
// one opens anything.
class Connection {
public:
  // @param window how many runs may come; one more: the server may say that it is closing
  Connection(rdma_cm_id *id, uint32_t window, uint32_t slots)
      : channel_(rdmacommon::create_comp_channel(id->verbs)), pd_(rdmacommon::alloc_pd(id->verbs)),
        cq_(rdmacommon::create_cq(id->verbs, static_cast<int>(2 * window + 2 + 2 * send_depth),
                                  channel_.get())),
        runs(id, pd_.get(), cq_.get(), window + 1), receiver(runs.get(), window + 1, slots) {}

  // @return a region that goes with this object, after the queue pairs
  const ibv_mr *reg(std::span<std::byte> memory, int access) {
    return regions_
        .emplace_back(rdmacommon::reg_mr(pd_.get(), memory.data(), memory.size(), access))
        .get();
  }

  // @param responses how many may be under way to this side, of one slot or more each; 0: none, to
  //                  the server
  void add_data_connection(rdma_cm_id *id, uint32_t responses, uint32_t slots) {
    data.emplace(id, pd_.get(), cq_.get(), responses);
    if (responses > 0)
      data_receiver.emplace(data->get(), responses, slots);
  }
  bool is_of_data(const ibv_wc &wc) const { return data && wc.qp_num == data->get()->qp_num; }

  size_t poll(std::span<ibv_wc> into) {
    const size_t count = rdmacommon::poll_batch(cq_.get(), into);
    has_heard_ |= count > 0;
    return count;
  }

  // Posts a receive for each that has been used. @return how many calls that took
  uint64_t repost() {
    const auto posts = [this] {
      return receiver.posts() + (data_receiver ? data_receiver->posts() : 0);
    };
    const uint64_t before = posts();
    receiver.repost();
    if (data_receiver)
      data_receiver->repost();
    return posts() - before;
  }

  int fd() const { return channel_->fd; } // readable when something has completed since arm()
  // @return false if it was not armed: what has completed before that is not told, so poll again
  bool arm() {
    if (std::exchange(is_armed_, true))
      return true;
    rdmacommon::check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
    return false;
  }
  bool is_armed() const { return is_armed_; }
  void take_event() { // there is one CQ, which was armed once: so there is one event at most
    if (rdmacommon::take_event(channel_.get()) != nullptr)
      is_armed_ = false;
  }

  // Call it now and then. A host that has died says nothing; a WRITE of no bytes disturbs nobody,
  // but must be acknowledged, and if it is not, its completion says so.
  void look_whether_alive() {
    if (std::exchange(has_heard_, false) || runs.queue.done() < probe_ || runs.queue.room() == 0)
      return;
    runs.queue.add({.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED});
    probe_ = runs.queue.added();
    runs.queue.post();
  }

  void destroy_queue_pairs() {
    if (data)
      data->holder.reset();
    runs.holder.reset();
  }

private:
  rdmacommon::unique_comp_channel channel_;
  rdmacommon::unique_pd pd_;
  std::vector<rdmacommon::unique_mr> regions_;
  rdmacommon::unique_cq cq_;
  bool is_armed_ = false, has_heard_ = true;
  uint64_t probe_ = 0; // the number of the request that looks

public: // after what they are made with, so that they go before
  QueuePair runs;
  rdmacommon::RunReceiver receiver;
  std::optional<QueuePair> data;
  std::optional<rdmacommon::RunReceiver> data_receiver;
};
// [connection]

// [rnr]
// RNR retries are 0: a peer that keeps to the window never finds the receive queue empty, and the
// connection of any other peer must break.
inline rdma_conn_param connection_parameters(const void *hello, size_t length) {
  return {.private_data = hello,
          .private_data_len = static_cast<uint8_t>(length),
          .retry_count = 6,
          .rnr_retry_count = 0};
}
// [rnr]

// What the other side has said with an event. Goes with the event.
inline std::span<const std::byte> private_data(const rdma_cm_event &event) {
  return {static_cast<const std::byte *>(event.param.conn.private_data),
          event.param.conn.private_data ? size_t{event.param.conn.private_data_len} : 0};
}

// Before another thread takes a connection down: rdma_get_cm_event() uses the queue pair of the id
// whose event it fetches. So the ids leave the event channel first. If they cannot, the queue pairs
// go at once.
inline void leave_channel(std::initializer_list<rdma_cm_id *> ids, Connection *connection) {
  for (rdma_cm_id *id : ids)
    if (id != nullptr && rdma_migrate_id(id, nullptr) != 0 && connection != nullptr)
      connection->destroy_queue_pairs();
}

// How soon a silent peer counts as dead. rdma_cm's own is 2.1 s for each of the seven attempts.
// Call it before rdma_connect() or rdma_accept().
inline void set_ack_timeout(rdma_cm_id *id) {
  uint8_t value = ack_timeout;
  rdmacommon::check_errno(
      rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, sizeof value),
      "rdma_set_option(ACK_TIMEOUT)");
}

} // namespace rdmashared

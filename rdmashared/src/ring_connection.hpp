// SPDX-License-Identifier: MIT
// Layer: wire. The RDMA resources of a connection, with its two rings, and the counters. It is the
// same on both sides.
#pragma once

#include "wire.hpp"

#include "rdmashared/basics.hpp"
#include "rdmashared/metrics.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/work_queues.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace rdmashared {

// The counters of the connections of one loop. The thread that has the loop writes; any thread may
// read.
class Counter {
public:
  void operator+=(uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  operator uint64_t() const { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<uint64_t> value_{0};
};

// The times that something took. Any thread adds to them.
class Times {
public:
  // So many are not timed for each that is: reading the clock would cost as much as a part of the
  // work.
  static constexpr uint32_t sample = 16;

  void add(std::chrono::steady_clock::duration time) {
    const auto us = static_cast<uint64_t>(
        std::max<int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count(), 0));
    const auto bucket = std::min(static_cast<size_t>(std::bit_width(us)), buckets_.size() - 1);
    buckets_.at(bucket).fetch_add(1, std::memory_order_relaxed);
    microseconds_.fetch_add(us, std::memory_order_relaxed);
  }
  void add_to(Histogram &all) const {
    for (size_t i = 0; i < buckets_.size(); ++i)
      all.buckets.at(i) += buckets_.at(i).load(std::memory_order_relaxed);
    all.microseconds += microseconds_.load(std::memory_order_relaxed);
  }

private:
  std::array<std::atomic<uint64_t>, std::tuple_size_v<decltype(Histogram::buckets)>> buckets_{};
  std::atomic<uint64_t> microseconds_ = 0;
};

// Each is what Counts says of it.
struct Stats {
  Counter messages, groups, posts, completions, wakes, rnr, sleeps, other_calls;
  Counter cancels; // requests that the workers of a sender have cancelled
  std::array<Counter, 9> sizes;
  std::array<Counter, 8> outcomes; // the number of requests for each of the first 8 outcomes
  Times waited; // a sender's request for a place in a ring; a server's for its handler
  Times took;   // from sending a request to its answer; a handler

  void count_group(uint32_t count) {
    groups += 1;
    messages += count;
    sizes.at(std::bit_width(std::min(count, 255U) - 1)) += 1;
  }

  void count(const ibv_wc &wc) {
    completions += 1;
    rnr += wc.status == IBV_WC_RNR_RETRY_EXC_ERR;
  }
};

inline void add(Counts &all, const Stats &more) {
  all.messages += more.messages;
  all.groups += more.groups;
  all.posts += more.posts;
  all.completions += more.completions;
  all.wakes += more.wakes;
  all.rnr += more.rnr;
  all.sleeps += more.sleeps;
  all.other_calls += more.other_calls;
  for (size_t i = 0; i < all.sizes.size(); ++i)
    all.sizes.at(i) += more.sizes.at(i);
}

// Adds the figures that both ends count.
// @param waited, took what Stats has timed, in words
void add_to(Metrics &metrics, std::span<const Stats *const> stats, std::string_view waited,
            std::string_view took);

// The RDMA resources of a connection: queue pairs, completion queue, and the memory of both rings.
class Connection {
public:
  // Posts all receives. The protection domain is this connection's own: no key of another one opens
  // anything.
  Connection(rdma_cm_id *id, const Shape &shape, uint32_t group, Stats &stats);
  Connection(const Connection &) = delete;
  Connection &operator=(const Connection &) = delete;

  // The ring into which the peer writes.
  uint64_t address() const { return reinterpret_cast<uintptr_t>(in_mr_->addr); }
  uint32_t rkey() const { return in_mr_->rkey; }
  // Sets the peer's ring, into which this side writes.
  void set_peer(uint64_t address, uint32_t rkey);

  // ---- out

  bool has_room(uint64_t slots) const { return out_.has_room(slots); }
  void put(const Header &header, std::span<const std::byte> bytes,
           std::span<const std::byte> more = {}) {
    out_.put(header, bytes, more);
  }
  // Posts what has been put, as far as the peer can take it, in one call.
  // @return whether there was something to post
  bool post();
  // The peer's host, and not its program, must acknowledge this; if it does not, take() throws. It
  // needs no room in the ring: a peer that takes nothing is asked, too.
  void probe();

  // ---- in

  // Takes completions, and calls f(header, bytes) for each message, as InRing::take() does.
  // @param may_take whether a run may be taken now; if not, it waits in its slots
  // @return whether there was something
  // @throws Error if the connection is broken, or the peer has sent what it should not
  template <typename Function, typename MayTake> bool take(Function f, MayTake may_take) {
    const bool has_polled = poll();
    bool has_taken = false;
    for (; !runs_.empty() && may_take(); has_taken = true) {
      const Arrived arrived = runs_.front();
      runs_.pop_front();
      in_.take(arrived.run, arrived.length, f);
    }
    return has_polled || has_taken;
  }

  // ---- the data connection

  void add_data_connection(rdma_cm_id *id);
  bool has_data_connection() const { return data_.has_value(); }
  // Writes a long response.
  // @return false if there is no room now
  bool write_data(const ibv_mr *from, std::span<const std::byte> bytes, const ResponseBuffer &to);
  // The number of these WRITEs that have completed, in the order in which they were posted.
  uint64_t data_written() const { return data_written_; }

  ibv_pd *pd() const { return pd_.get(); }

  // ---- sleeping

  int fd() const { return channel_->fd; } // readable when something has completed since arm()
  // @return false if it was not armed: what has completed before that is not told, so poll again
  bool arm();
  void take_event();

  void destroy_queue_pairs();

private:
  struct QueuePair {
    QueuePair(rdma_cm_id *id, ibv_pd *pd, ibv_cq *cq, uint32_t receives);
    rdmacommon::unique_cm_qp holder;
    rdmacommon::SendQueue queue;
  };
  struct Arrived {
    rdmacommon::Run run;
    uint32_t length;
  };
  bool poll();
  void received(const ibv_wc &wc);
  void repost();

  Stats &stats_;
  OutRing out_;
  InRing in_;
  std::deque<Arrived> runs_;
  rdmacommon::unique_comp_channel channel_;
  rdmacommon::unique_pd pd_;
  rdmacommon::unique_cq cq_;
  rdmacommon::unique_mr out_mr_, in_mr_;
  QueuePair requests_;
  rdmacommon::ReceiveQueue receives_;
  std::optional<QueuePair> data_;
  uint64_t data_written_ = 0;
  uint64_t peer_address_ = 0;
  uint32_t peer_rkey_ = 0;
  bool is_armed_ = false;
};

// A peer that keeps to the rules never finds the receive queue empty: it knows how many runs this
// side has taken. The connection of any other peer must break.
inline rdma_conn_param connection_parameters(const void *hello, size_t length) {
  return {.private_data = hello,
          .private_data_len = static_cast<uint8_t>(length),
          .retry_count = 6,
          .rnr_retry_count = 0};
}

// The private data that came with an event. They go with the event.
inline std::span<const std::byte> private_data(const rdma_cm_event &event) {
  return {static_cast<const std::byte *>(event.param.conn.private_data),
          event.param.conn.private_data ? size_t{event.param.conn.private_data_len} : 0};
}

// Prepares a connection that another thread will take down. rdma_get_cm_event() uses the queue pair
// of the id whose event it fetches, so the ids leave the event channel first. If they cannot, the
// queue pairs go at once.
void leave_channel(std::initializer_list<rdma_cm_id *> ids, Connection *connection);

// Sets the time after which a silent peer counts as dead. rdma_cm's own is 2.1 s for each of the
// seven attempts. Call it before rdma_connect() or rdma_accept().
void set_ack_timeout(rdma_cm_id *id);

} // namespace rdmashared

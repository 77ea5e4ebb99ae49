// SPDX-License-Identifier: MIT
// Layer: ends. One connection of a sender to one server. It connects, sends requests, and hands out
// what comes back. When the connection breaks, it says so, and connects again.
//
// None of its functions blocks: names are looked up, memory is registered, and connections are
// taken down by other threads. One call can still wait: rdma_resolve_route() asks the daemon ibacm,
// on a host where that runs.
#pragma once

#include "epoll_loop.hpp"
#include "memory.hpp"
#include "ring_connection.hpp"

#include "rdmashared/sender.hpp"

#include <rdmacommon/cm.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unordered_set>

namespace rdmashared {

// The pause after a failure, as in lesson 13: twice as long each time, up to a limit, with a random
// part. So clients that lost the server together do not come back together.
class Backoff {
public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds limit)
      : first_(first), limit_(limit) {}

  std::chrono::milliseconds next() {
    const auto longest = std::min(first_ * (1 << std::min(failures_++, 16)), limit_);
    return std::chrono::milliseconds(
        std::uniform_int_distribution<int64_t>(longest.count() / 2, longest.count())(random_));
  }
  void reset() { failures_ = 0; }

private:
  const std::chrono::milliseconds first_, limit_;
  int failures_ = 0;
  std::mt19937 random_{std::random_device{}()};
};

class SenderLoop;

// A connection to one server, which is made again when it breaks. Only the thread of its SenderLoop
// uses it.
class Lane {
public:
  // The interval at which a connection that is up checks that the server lives.
  static constexpr std::chrono::milliseconds tick{500};

  // @param server  an index into options.servers
  // @param channel for its rdma_cm events; the context of the id is this object
  // The options, the loop, the pool and the owner outlive this object.
  Lane(uint32_t server, const SenderOptions &options, const Shape &shape,
       rdma_event_channel *channel, Loop &loop, Pool &pool, Stats &stats, SenderLoop &owner);
  ~Lane();
  Lane(const Lane &) = delete;
  Lane &operator=(const Lane &) = delete;

  const uint32_t server;
  size_t turn = 0; // the owner's: which of its queues goes first

  bool is_up() const { return state_ == State::up; }
  const std::string &why() const { return why_; } // the reason why it is not up
  uint32_t under_way() const { return under_way_; }
  uint32_t window() const { return window_; }

  // ---- sending

  // True if put() may be called for a request of this many slots.
  bool has_room(uint64_t slots) const {
    return is_up() && under_way_ < window_ && connection_->has_room(slots);
  }
  bool can_take_long() const { return long_under_way_ < shape_.long_responses; }
  void put(const Header &header, std::span<const std::byte> bytes) {
    connection_->put(header, bytes);
    under_way_ += header.kind == Kind::request;
  }
  // Tells the server that nobody waits for this request's response; not if there is no room.
  void cancel(uint64_t id);
  // The owner forgets this request. Its answer may still come.
  void give_up(uint64_t id) { given_up_[RequestId::unpacked(id).worker].insert(id); }
  bool has_given_up(uint64_t id) const {
    const auto its = given_up_.find(RequestId::unpacked(id).worker);
    return its != given_up_.end() && its->second.contains(id);
  }
  // The number of requests that a worker has given up, and that the server has not answered.
  size_t given_up(uint16_t worker) const {
    if (given_up_.empty()) // nearly always
      return 0;
    const auto its = given_up_.find(worker);
    return its == given_up_.end() ? 0 : its->second.size();
  }
  // @param buffer in the worker's area, which the server may write to
  void put_long(const Header &header, std::span<const std::byte> bytes,
                const ResponseBuffer &buffer);
  // Returns the address and the key of a worker's response buffers, or nothing if they are not
  // registered yet. That takes long, and another thread does it: ask again later.
  std::optional<ResponseBuffer> buffers_of(uint16_t worker, const std::shared_ptr<Area> &area);
  // Returns true if the registration failed since the last call. The next buffers_of() tries again.
  bool take_registration_failure(uint16_t worker);
  void forget_buffers(uint16_t worker) { buffers_.erase(worker); } // nothing of it is under way

  // ---- turns

  // Each returns false if there was nothing to do. They lose the connection if it is broken.
  bool take();
  bool post();
  // @return false if there is something to take: do not sleep
  bool arm();
  void on_cm_event(const rdma_cm_event &event);
  // The time at which check_deadlines() must be called.
  Clock::time_point deadline() const { return is_broken_ ? Clock::time_point::max() : deadline_; }
  void check_deadlines();

private:
  enum class State { resting, connecting, up, draining };
  struct Buffers {
    std::shared_ptr<Area> area; // goes after the region
    rdmacommon::unique_mr region;
    bool has_failed = false;
  };

  bool has_been_up() const { return state_ == State::up || state_ == State::draining; }
  void start_background_work(std::function<void()> work, std::function<void()> then);
  template <typename Function> bool try_to(Function function);
  void begin();
  void resolve(rdmacommon::unique_cm_id &id);
  void route_resolved();
  void connect_requests();
  void established(const rdma_cm_event &event);
  void join_data();
  void come_up();
  void message(const Header &header, std::span<const std::byte> bytes);
  bool answers_given_up(const Header &header);
  void probe_peer();
  bool ping();
  void lose(const std::string &why);
  void take_down();

  const SenderOptions &options_;
  const ServerAddress &address_of_server_;
  const Shape shape_;
  rdma_event_channel *channel_;
  Loop &loop_;
  Pool &pool_;
  Stats &stats_;
  SenderLoop &owner_;

  State state_ = State::resting;
  std::string why_ = "it has not been tried yet";
  Clock::time_point deadline_ = Clock::now(), up_since_{};
  uint32_t window_ = 0, under_way_ = 0, long_under_way_ = 0;
  uint32_t pings_ = 0; // without a pong
  uint64_t token_ = 0;
  bool is_broken_ = false;          // take_down() follows
  bool background_pending_ = false; // a thread works with what is below, which must stay
  bool has_heard_ = false;
  bool is_leaving_ = false; // a server that ends, once it has answered the last ping
  uint32_t silent_ticks_ = 0;
  Backoff backoff_{options_.retry_delay, options_.max_retry_delay};
  rdmacommon::CmAddress address_{};
  rdmacommon::unique_cm_id id_, data_id_;                     // go after what is connected by them
  std::map<uint16_t, Buffers> buffers_;                       // by worker
  std::map<uint16_t, std::unordered_set<uint64_t>> given_up_; // by worker: the requests' ids
  std::unique_ptr<Connection> connection_;
};

} // namespace rdmashared

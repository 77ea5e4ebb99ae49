// SPDX-License-Identifier: MIT
// The part of a Caller behind its header: the lanes of the senders that it has joined, and its
// requests there.
#pragma once

#include "answer_table.hpp"
#include "bells.hpp"
#include "events.hpp"

#include "rdmashared/caller.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace rdmashared {

// A connection to a server, as its callers have it: a ring for the requests, and the answers to
// them.
struct CallerLane {
  rdmacommon::SlotRing *ring;
  AnswerTable answers;
  uint32_t worker;
  std::function<bool()> is_over; // whether the sender has gone; empty in the sender's own process
  // This process has found that the sender has gone. By std::atomic_ref, and not in the segment: a
  // process that has closed its own end of the link finds the same, and must not decide for the
  // others.
  uint32_t is_given_up = 0;

  void give_up() { std::atomic_ref(is_given_up).store(1, std::memory_order_relaxed); }
  bool has_sender() { return std::atomic_ref(is_given_up).load(std::memory_order_relaxed) == 0; }
  bool is_up() {
    return answers.status().is_up.load(std::memory_order_acquire) != 0 && has_sender();
  }
  bool leads_to(std::optional<uint32_t> server) const {
    return !server || *server == answers.status().server;
  }
};

class CallerLanes {
public:
  CallerLanes(std::vector<rdmacommon::Link> links, Waiting waiting);
  CallerLanes(std::vector<CallerLane> lanes, Waiting waiting);
  // In the sender's process.
  static Caller caller(std::vector<CallerLane> lanes, Waiting waiting) {
    return Caller(std::make_unique<CallerLanes>(std::move(lanes), waiting));
  }
  ~CallerLanes();

  Pending request_async(std::span<const std::byte> bytes, const RequestOptions &options);
  std::optional<Pending> try_request_async(std::span<const std::byte> bytes,
                                           const RequestOptions &options);
  void post(std::span<const std::byte> bytes, const RequestOptions &options);
  uint32_t largest_response() const {
    return lanes_.empty() ? 0 : lanes_.front().answers.largest();
  }

  // Of a Pending that has not been collected.
  bool is_ready(const Pending &pending) const;
  bool wait(Pending &pending, std::chrono::milliseconds limit, const InPlace &in_place);
  void drop(const Pending &pending);

  // A caller sleeps for a connection, or for many responses: caller_events.cpp.
  bool wait_connected(std::chrono::milliseconds limit, std::optional<uint32_t> server,
                      rdmacommon::Where where);
  std::optional<size_t> wait_any(std::span<const Pending> requests, std::chrono::milliseconds limit,
                                 std::optional<Waiting> waiting, rdmacommon::Where where);
  void request_then(std::span<const std::byte> bytes, Then then, const RequestOptions &options);
  int fd();
  size_t run_ready();

private:
  void sort_by_server(size_t first);
  void check_count() const;
  void check_server(std::optional<uint32_t> server, rdmacommon::Where where) const;
  struct Claimed {
    CallerLane &lane;
    rdmacommon::SlotRing::Claim claim;
  };
  // @param full a lane that has no room now, if there is nothing else
  std::optional<Claimed> try_claim(uint32_t length, const RequestOptions &options,
                                   CallerLane *&full);
  Claimed claim(uint32_t length, const RequestOptions &options);
  uint32_t checked_length(size_t bytes, const RequestOptions &options) const;
  std::vector<BellSeen> bells() const;
  std::vector<bool> orphans() const;
  bool has_orphans(); // callbacks that no sender rings for
  void listen(std::vector<BellSeen> seen);
  Pending hand_over(Claimed claimed, std::span<const std::byte> bytes, Kind kind,
                    const RequestOptions &options);
  static rdmacommon::SlotRun slots_of(const CallerLane &lane, const Pending &pending);

  const Waiting waiting_;
  std::vector<std::unique_ptr<rdmacommon::RingWorker>> joined_;
  std::vector<CallerLane> lanes_;
  std::vector<std::vector<uint32_t>> servers_; // of each server of each sender: its lanes
  std::atomic<uint32_t> turn_{0};

  struct Callback {
    Pending pending;
    Then then;
  };
  const uint32_t bell_ = std::random_device{}(); // of each lane, for any response
  Event event_;
  std::mutex callbacks_mutex_; // of these three
  std::list<Callback> callbacks_;
  std::thread listener_; // from bells to event_
  std::atomic<bool> is_over_{false};
};

} // namespace rdmashared

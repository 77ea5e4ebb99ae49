// The part of a Caller behind its header: the lanes of the senders that it has joined, and its requests there.
#pragma once

#include "answers.hpp"
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
#include <cstdlib>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace rdmashared {

// [asked]
// The last request of this process from each slot. The answer's word says whether its answer has been collected since.
class Asked {
public:
  // Of a large ring, a process uses little: pages that nobody has written to cost nothing.
  explicit Asked(uint32_t slots)
      : slots_(slots), words_(static_cast<uint64_t *>(std::calloc(slots, sizeof(uint64_t)))) {
    rdmacommon::check_ptr(words_.get(), "calloc");
  }
  uint32_t slots() const { return slots_; }
  void set(const rdmacommon::SlotRun &run) {
    std::atomic_ref(words_.get()[run.first])
        .store(run.position << 16 | run.count, std::memory_order_relaxed);
  }
  // @return a run of no slots if it has never asked from there
  rdmacommon::SlotRun at(uint32_t slot) const {
    const uint64_t word = std::atomic_ref(words_.get()[slot]).load(std::memory_order_relaxed);
    return {.position = word >> 16, .first = slot, .count = static_cast<uint32_t>(word & 0xffff)};
  }

private:
  struct Free {
    void operator()(uint64_t *words) const { std::free(words); }
  };
  uint32_t slots_;
  std::unique_ptr<uint64_t, Free> words_;
};
// [asked]

// A connection to a server, as its callers have it: a ring for the requests, and the answers to them.
struct CallerLane {
  rdmacommon::SlotRing *ring;
  Answers answers;
  uint32_t worker;
  std::function<bool()> is_over; // whether the sender has gone; empty in the sender's own process
  // This process has found that the sender has gone. By std::atomic_ref, and not in the segment: a process that has closed its
  // own end of the link finds the same, and must not decide for the others.
  uint32_t is_given_up = 0;
  Asked asked{ring->shape().slots};
};

class CallerLanes {
public:
  CallerLanes(std::vector<rdmacommon::Link> links, Waiting waiting);
  // In the sender's process.
  CallerLanes(std::vector<CallerLane> lanes, Waiting waiting);
  ~CallerLanes();

  Pending request_async(std::span<const std::byte> bytes, const Ask &ask);
  void post(std::span<const std::byte> bytes, const Ask &ask);
  uint32_t largest_response() const {
    return lanes_.empty() ? 0 : lanes_.front().answers.largest();
  }

  // Of a Pending that has not been collected.
  bool is_ready(const Pending &pending) const;
  bool wait(Pending &pending, std::chrono::milliseconds limit, const InPlace &in_place);
  void drop(const Pending &pending);

  // For event loops: caller_events.cpp.
  std::optional<size_t> wait_any(std::span<const Pending> requests,
                                 std::chrono::milliseconds limit);
  void request_then(std::span<const std::byte> bytes, Then then, const Ask &ask);
  int fd();
  size_t run_ready();

private:
  void sort_by_server(size_t first);
  struct Claimed {
    CallerLane &lane;
    rdmacommon::SlotRing::Claim claim;
  };
  Claimed claim(uint32_t length, const Ask &ask);
  uint32_t checked_length(size_t bytes, const Ask &ask) const;
  rdmacommon::SlotRing::Claim wait_for_slots(CallerLane &lane, uint32_t length,
                                             std::chrono::milliseconds limit);
  bool wait(CallerLane &lane, uint64_t position, std::chrono::milliseconds limit, Waiting how);
  std::vector<BellSeen> bells() const;
  std::vector<bool> orphans() const;
  bool has_orphans(); // callbacks that no sender rings for
  void listen(std::vector<BellSeen> seen);
  bool take_out_ready();
  struct TakenOut {
    Outcome outcome;
    std::vector<std::byte> bytes;
  };
  std::optional<TakenOut> taken_out(CallerLane &lane, uint64_t position);
  Pending hand_over(std::span<const std::byte> bytes, Kind kind, const Ask &ask);
  static rdmacommon::SlotRun slots_of(const CallerLane &lane, const Pending &pending);

  const Waiting waiting_;
  std::vector<std::unique_ptr<rdmacommon::RingWorker>> joined_;
  std::vector<CallerLane> lanes_;
  std::vector<std::vector<uint32_t>> servers_; // of each server of each sender: its lanes
  std::atomic<uint32_t> turn_{0};
  std::mutex mutex_;
  std::map<std::pair<CallerLane *, uint64_t>, TakenOut> taken_out_; // by position, until collected

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

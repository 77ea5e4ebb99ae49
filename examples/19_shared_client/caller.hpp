// What a worker calls: requests, and what comes of them. A worker is a child of the sender's process, a process that was
// started on its own, or a thread of the sender's process; what it calls is the same.
//
//     std::vector<rdmacommon::Link> links;
//     links.push_back(rdmacommon::connect_to_ring("name"));
//     Caller caller(std::move(links)); // in the sender's own process: sender.caller()
//     std::vector<std::byte> response = caller.request(bytes);
//     caller.request(bytes, [](std::span<const std::byte> response) {}); // in place, without a copy
//     Pending pending = caller.request_async(bytes);
//     pending.wait(std::chrono::seconds(1)); // the response, or nothing yet
//     caller.post(bytes); // no response
#pragma once

#include "answers.hpp"

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
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace shared_client {

class Caller;

// A request that has no response. what() says why.
class RequestFailed : public rdmacommon::Error {
public:
  RequestFailed(Outcome outcome, const std::string &why);
  Outcome outcome() const { return outcome_; }

private:
  Outcome outcome_;
};

// The server can write there at any moment: who does not trust it copies, then checks, then uses.
using InPlace = std::function<void(std::span<const std::byte> response)>;

// [asked]
// What a process has asked last, by slot. Whether it has been collected since, the answer's word knows.
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
        .store(run.position << 8 | run.count, std::memory_order_relaxed);
  }
  // @return a run of no slots if it has never asked from there
  rdmacommon::SlotRun at(uint32_t slot) const {
    const uint64_t word = std::atomic_ref(words_.get()[slot]).load(std::memory_order_relaxed);
    return {.position = word >> 8, .first = slot, .count = static_cast<uint32_t>(word & 0xff)};
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

// A request whose response may be collected later. Belongs to one thread, and must go before its Caller. Who lets it go without a wait() drops the
// request: the server still carries it out.
class Pending {
public:
  Pending(Pending &&other) noexcept
      : caller_(std::exchange(other.caller_, nullptr)), lane_(other.lane_), run_(other.run_) {}
  Pending &operator=(Pending &&) = delete;
  ~Pending();

  // Whether wait() would come back at once.
  bool is_ready() const;

  // Waits for the response. To be called again only if it came back without one.
  // @return nothing if `limit` has passed
  // @throws RequestFailed if there is none, Error if the sender has died
  std::optional<std::vector<std::byte>> wait(std::chrono::milliseconds limit);
  // The same with the response where it lies, if it still does. Its slots are kept while `in_place` runs, and others may
  // wait for them.
  bool wait(std::chrono::milliseconds limit, const InPlace &in_place);

private:
  friend class Caller;
  Pending(Caller &caller, CallerLane &lane, const rdmacommon::SlotRun &run)
      : caller_(&caller), lane_(&lane), run_(run) {}

  Caller *caller_; // null once it has been collected
  CallerLane *lane_;
  rdmacommon::SlotRun run_;
};

// [ask]
// What a request may want beyond the default.
struct Ask {
  size_t room = 0;                // bytes of the response, where it is longer than the request
  std::optional<uint32_t> server; // which; by default one after the other
  std::chrono::milliseconds limit{5000}; // for a slot, and then for the response
};
// [ask]

// For all threads of a process.
class Caller {
public:
  // Joins a sender, or several that share the load.
  // @param links to their RingHosts: connect_to_ring(), or a child's
  explicit Caller(std::vector<rdmacommon::Link> links, Waiting waiting = Waiting::events);
  // In the sender's process: by Sender::caller().
  Caller(std::vector<CallerLane> lanes, Waiting waiting)
      : waiting_(waiting), lanes_(std::move(lanes)) {}

  // [ways]
  // @throws RequestFailed if it has failed; Error if it is too long, time is up, the ring stays full, or the sender is gone
  std::vector<std::byte> request(std::span<const std::byte> bytes, const Ask &ask = {});
  void request(std::span<const std::byte> bytes, const InPlace &in_place, const Ask &ask = {});
  Pending request_async(std::span<const std::byte> bytes, const Ask &ask = {});
  // Without a response. It comes back when the request has been handed to the sender, and nobody says what became of it.
  void post(std::span<const std::byte> bytes, const Ask &ask = {});
  // [ways]

  uint32_t largest_response()
      const; // where Ask::room does not count: by data connections; 0 if there are none

private:
  friend class Pending;
  CallerLane &next_lane(const Ask &ask);
  rdmacommon::SlotRing::Claim wait_for_slots(CallerLane &lane, uint32_t length,
                                             std::chrono::milliseconds limit);
  bool wait(CallerLane &lane, uint64_t position, std::chrono::milliseconds limit);
  bool take_out_ready();
  struct TakenOut {
    Outcome outcome;
    std::vector<std::byte> bytes;
  };
  std::optional<TakenOut> taken_out(CallerLane &lane, uint64_t position);
  rdmacommon::SlotRun hand_over(CallerLane &lane, std::span<const std::byte> bytes, Kind kind,
                                const Ask &ask);

  Waiting waiting_;
  std::vector<std::unique_ptr<rdmacommon::RingWorker>> joined_;
  std::vector<CallerLane> lanes_;
  std::atomic<uint32_t> turn_{0};
  std::mutex mutex_;
  std::map<std::pair<CallerLane *, uint64_t>, TakenOut> taken_out_; // by position, until collected
};

} // namespace shared_client

// SPDX-License-Identifier: MIT
// Layer: ends. A thread of a sender: it takes what its workers submit, sends it by its lanes, and
// gives the answers back.
#pragma once

#include "epoll_loop.hpp"
#include "lane.hpp"
#include "members.hpp"
#include "memory.hpp"

#include "rdmashared/sender.hpp"

#include <rdmacommon/cm.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmashared {

// A thread of a sender, and what belongs to it alone.
class SenderLoop {
public:
  // The functions are called in the loop's thread.
  // @param changed when a lane comes up (1), goes down (-1), or has failed (0), and why one is not
  //                up; empty if all are
  // @param free    for a member that has left, and has nothing under way
  // @param drop    for a member that must leave
  // The options outlive this object.
  SenderLoop(const SenderOptions &options, const Shape &shape,
             std::function<void(int more, std::string_view why)> changed,
             std::function<void(uint32_t number)> free, std::function<void(uint32_t number)> drop);
  ~SenderLoop();

  void run();
  void stop() {
    loop_.send([this] { is_stopped_ = true; });
  }
  void mark_ended(); // every request of its workers fails from here on

  // Any thread can call these functions.
  int board() const { return board_.fd(); }
  void join(Member member);
  void leave(uint32_t number);
  const Stats &stats() const { return stats_; }
  Loop &loop() { return loop_; }
  // Adds the figures of this loop. Only its own thread calls it.
  void add_to(Metrics &metrics, size_t thread) const;

  // The lanes call these functions:

  // The server has answered a request of this lane.
  // @param bytes where they came: copy, then check, then use
  // @return what the request wanted; nothing if it was not under way there
  std::optional<Want> answered(Lane &lane, const Header &header, std::span<const std::byte> bytes);
  void came_up(Lane &lane) { note(lane, 1); }
  void went_down(Lane &lane) { note(lane, -1); } // no more requests
  // The lane gets no more answers: its requests that are under way are lost.
  void lost(Lane &lane);

private:
  struct Worker;
  // The sender's own record of a request. It does not depend on the worker's word.
  struct Request {
    enum class State : uint8_t { none, waiting, sent } state = State::none;
    bool is_cancelled = false;
    uint16_t generation = 0;
    uint32_t slot = 0;                            // its first one
    Submission what{};                            // a copy
    Clock::time_point since{};                    // the time when it was submitted, or sent
    Clock::time_point deadline{};                 // the time after which it is worthless
    bool is_timed = false;                        // see Times
    Lane *lane = nullptr;                         // the lane that has sent it
    Worker *worker = nullptr;                     // its owner
    Request *previous = nullptr, *next = nullptr; // its neighbours in its queue
  };
  struct Worker {
    explicit Worker(Member its)
        : member(std::move(its)), number(static_cast<uint16_t>(member.number)), area(*member.area),
          shape(area.shape()), requests(std::make_unique<Request[]>(shape.slots)) {
      for (uint32_t slot = 0; slot < shape.slots; ++slot) {
        requests[slot].slot = slot;
        requests[slot].worker = this;
      }
    }

    const Member member;
    const uint16_t number;
    const Area &area;
    const AreaShape shape;
    uint32_t taken = 0; // entries of the queue that the sender has taken, modulo 2^32
    uint32_t under_way = 0;
    uint64_t bytes = 0; // bytes in the slots, of all requests under way
    bool has_left = false;
    const std::unique_ptr<Request[]> requests; // by its first slot
  };
  // Requests that no lane has had room for yet, the oldest first. One that is cancelled leaves from
  // the middle.
  class Queue {
  public:
    bool is_empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    Request &first() { return *first_; }
    void add(Request &request) {
      request.previous = std::exchange(last_, &request);
      request.next = nullptr;
      (request.previous ? request.previous->next : first_) = &request;
      ++size_;
    }
    void remove(Request &request) {
      (request.previous ? request.previous->next : first_) = request.next;
      (request.next ? request.next->previous : last_) = request.previous;
      --size_;
    }

  private:
    Request *first_ = nullptr, *last_ = nullptr;
    size_t size_ = 0;
  };
  struct Queues {
    Queue others, long_ones; // by what their response is
    bool is_empty() const { return others.is_empty() && long_ones.is_empty(); }
  };

  // The limit for a worker's given-up requests in a lane. A slot has more generations: one is free.
  static constexpr uint32_t most_given_up = 0xffff;

  bool gather();
  bool take_submissions();
  bool take_from(Worker &worker);
  void drop(Worker &worker);
  void take(Worker &worker, uint32_t entry);
  // The bytes that a request and its response need in the slots, which they share.
  static uint32_t bytes_of(const Submission &what) {
    return std::max(what.length, what.max_response);
  }
  static uint64_t id_of(const Request &request) {
    return RequestId{
        .worker = request.worker->number, .generation = request.generation, .slot = request.slot}
        .packed();
  }
  Queue &queue_of(const Submission &what) {
    Queues &queues = waiting_[std::min(what.server, servers_)];
    return what.want == Want::long_response ? queues.long_ones : queues.others;
  }
  void cancel(Request &request);
  bool send();
  bool send_group(Lane &lane);
  uint64_t slots_of(const Request &request) const { // slots of the ring that it takes
    const Submission &what = request.what;
    return slots_for(what.length + (what.want == Want::long_response ? ResponseBuffer::bytes : 0),
                     shape_.slot_size);
  }
  bool send_one(Lane &lane, Queue &from);
  std::optional<Outcome> failure_of(Lane &lane, const Request &request) const;
  static bool may_send(const Lane &lane, const Request &request);
  bool serves(const Lane &lane, uint32_t server) const {
    return lane.is_up() && (server >= servers_ || lane.server == server);
  }
  bool send_request(Lane &lane, Request &request);
  // @return milliseconds, at least one; 0: always
  uint32_t left(Clock::time_point deadline) const {
    if (deadline == Clock::time_point::max())
      return 0;
    return static_cast<uint32_t>(
        std::chrono::ceil<std::chrono::milliseconds>(deadline - now_).count());
  }
  void fail_waiting();
  void finish(Request &request, Outcome outcome, uint32_t length);
  void wake_workers();
  bool take_answers();
  void sleep();
  void poll_events(Clock::time_point until, bool may_sleep);
  bool arm();
  void free_if_gone(Worker &worker);

  void note(const Lane &lane, int more);

  const SenderOptions &options_;
  const Shape shape_;
  const uint32_t servers_; // the number of servers
  const std::function<void(int, std::string_view)> changed_;
  const std::function<void(uint32_t)> free_, drop_;
  OwnBoard board_;
  Stats stats_;
  Loop loop_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  std::vector<std::unique_ptr<Worker>> workers_; // in no order
  std::array<Worker *, max_workers> by_number_{};
  std::array<uint32_t, max_workers / 32> touched_{}; // a bit for each worker that has answers
  uint32_t touched_bells_ = 0;                       // a bit for each word of these
  std::vector<Queues> waiting_;                      // for each server, and at the end for any
  std::vector<std::unique_ptr<Lane>> lanes_;
  size_t first_worker_ = 0, first_lane_ = 0; // another one each time
  uint32_t busy_ = 0;                        // workers with requests under way
  Clock::time_point now_{};                  // when this turn took what was submitted
  bool is_stopped_ = false;
  Pool pool_; // goes first: its threads work for the lanes
};

} // namespace rdmashared

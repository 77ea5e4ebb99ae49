// SPDX-License-Identifier: MIT
// One connection to one server, with the ring that feeds it. It connects, sends the ready requests
// in groups, and hands out the answers. When the connection breaks, it tells all callers that wait,
// and connects again.
//
// The sender's loop calls turn() as long as there is something to do, and sleeps when arm() agrees.
// None of these calls blocks: names are looked up, memory is registered, and connections are taken
// down as errands, by other threads. One call can still wait: rdma_resolve_route() asks the daemon
// ibacm, on a host where that runs.
#pragma once

#include "answer_table.hpp"
#include "backoff.hpp"
#include "errands.hpp"
#include "long_messages.hpp"
#include "rdma_connection.hpp"
#include "stats.hpp"

#include "rdmashared/sender.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rdmashared {

class Lane {
public:
  using Clock = std::chrono::steady_clock;

  // @param server  an index into options.servers, by which callers know it
  // @param options outlive this object
  // @param shape   as the options have it
  // @param channel for its events; the id's context is this object
  Lane(rdmacommon::SlotRing &ring, uint32_t server, const SenderOptions &options,
       const Shape &shape, rdma_event_channel *channel, Errands &errands, Stats &stats);
  ~Lane(); // all callers that wait get an error. The errands must have gone
  Lane(const Lane &) = delete;
  Lane &operator=(const Lane &) = delete;

  // Does what there is to do. @return false if there was nothing
  // @throws Error if the ring is damaged: what has been taken from it cannot be given back then
  bool turn();
  // Call it when turn() had nothing. @return false if there is something now: do not sleep
  bool arm();
  void disarm() { ring_.disarm(false); } // after the sleep; the doorbell is the RingHost's
  void on_cm_event(const rdma_cm_event &event);
  void on_completion_event();
  // When look_at_the_clock() wants to be called.
  Clock::time_point deadline() const { return is_broken_ ? Clock::time_point::max() : deadline_; }
  void look_at_the_clock();

  // The worker's number is free: nobody collects the answers to its requests.
  void worker_left(uint32_t worker);

  int fd() const { return connection_ ? connection_->fd() : -1; } // of completions; -1: none now
  int new_fd() { return std::exchange(new_fd_, -1); } // the same, once for each connection
  bool is_up() const { return state_ == State::up; }
  // Nobody serves it from here on.
  void say_down() { answers_.status().is_up.store(0, std::memory_order_release); }
  const std::string &why() const { return why_; } // it is not up

private:
  enum class State { resting, resolving, connecting, joining_data, up, draining };

  // A request that was sent and whose slots have not come back, as far as the sender knows.
  struct Sent {
    enum class State : uint8_t { none, sent, answered };
    uint64_t position = 0;
    uint32_t length = 0;
    uint16_t worker = 0, slots = 0;
    uint8_t service = 0;
    State state = State::none;
    Kind kind = Kind::request;
  };

  void aside(std::function<void()> work, std::function<void()> then);
  void begin();
  void resolve(rdmacommon::unique_cm_id &id);
  void made_route();
  void connect_requests();
  void established(const rdma_cm_event &event);
  void join_data();
  void connect_data();
  void come_up();
  void lose(const std::string &why);
  void tear_down();
  void buried();
  bool fail_ready();
  void fail(const rdmacommon::SlotRun &run);

  bool take_completions();
  void take_answers(rdmacommon::Run run);
  void take_answer(uint32_t slot);
  void take_long_response(const ibv_wc &wc);
  void finish(uint32_t slot, Outcome outcome, uint32_t length, bool is_long = false);
  bool send();
  bool take_group();
  bool may_send() const;
  // @return bytes to send
  uint32_t note_sent(const rdmacommon::SlotMessage &message, uint64_t position);
  rdmacommon::SlotRun next_run(uint32_t max_slots);
  rdmacommon::SlotRun slots_of_sent(uint32_t slot) const;
  Kind checked_kind(uint32_t claimed) const;
  Message message_of(const Sent &sent, uint32_t slot) const;
  void log(const std::string &line) const {
    if (options_.log)
      options_.log(line);
  }

  rdmacommon::SlotRing &ring_;
  const SenderOptions &options_;
  const ServerAddress &server_;
  const Shape shape_;
  rdma_event_channel *channel_;
  Errands &errands_;
  Stats &stats_;
  AnswerTable answers_;
  State state_ = State::resting;
  std::string why_ = "it has not been tried yet";
  Clock::time_point deadline_ = Clock::now();
  std::vector<Sent> sent_;              // by slot
  std::map<uint32_t, uint64_t> gone_;   // by worker: nobody collects what it claimed before this
  uint32_t under_way_ = 0, window_ = 0; // runs
  rdmacommon::SlotRun
      held_;      // taken from the ring: a long message, for which the window has no room yet
  Cut cut_;       // what is being sent
  Joined joined_; // what is coming
  uint64_t token_ = 0;
  int new_fd_ = -1;
  bool is_broken_ = false;
  bool is_aside_ = false; // an errand is on its way, and what it works with must stay
  Backoff backoff_{options_.rest, options_.longest_rest};
  rdmacommon::CmAddress address_{};

  rdmacommon::unique_cm_id id_, data_id_; // go after what is connected by them
  rdmacommon::SlotMirror mirror_{};
  const ibv_mr *requests_mr_ = nullptr, *answers_mr_ = nullptr, *data_mr_ = nullptr;
  std::unique_ptr<Connection> connection_;
};

} // namespace rdmashared

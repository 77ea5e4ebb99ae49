// SPDX-License-Identifier: MIT
// Layer: ends. A thread's loop over sessions: their turns, their rdma_cm events, and their common
// sleep. A server has one such thread or several, and each session belongs to one of them.
#pragma once

#include "epoll_loop.hpp"
#include "session.hpp"

#include "rdmashared/server.hpp"

#include <rdmacommon/cm.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace rdmashared {

class SessionLoop {
public:
  // @param pool  for handlers; without threads they run in this loop
  // @param aside for what takes long
  // @param gone  called in this thread for each session that was adopted and is no more
  // All of them outlive this object.
  SessionLoop(const ServerOptions &options, const RequestHandler &handler, Pool &pool, Pool &aside,
              std::function<void(bool was_dropped)> gone);
  ~SessionLoop();
  SessionLoop(const SessionLoop &) = delete;
  SessionLoop &operator=(const SessionLoop &) = delete;

  // Before run(): what takes a client's request for a connection. Only the first loop gets any.
  void on_request(std::function<void(rdma_cm_event &)> f) { on_request_ = std::move(f); }
  Loop &loop() { return loop_; }
  rdma_event_channel *channel() const { return channel_.get(); }
  const std::shared_ptr<Answers> &answers() const { return answers_; }
  Stats &stats() { return stats_; }
  Counts counts() const { return stats_.now(); }

  // Returns after end(). @throws Error if the host has no more of what a server needs
  void run();

  // In its thread:

  // @param made of one session, which is this loop's then. @throws Error if it cannot be accepted;
  //             it stays there
  void adopt(std::list<Session> &made);
  // @param id is the session's then, if there is one that has this token
  Refusal accept_data(uint64_t token, rdmacommon::unique_cm_id &id);
  // Asks all clients to send no more, and closes those that are there at `when`.
  void finish_by(Clock::time_point when, bool says_so);
  void end() { is_over_ = true; }
  // Closed, and not this loop's any more.
  void take_down(std::list<Session> &whose, std::list<Session>::iterator session);

private:
  bool turn();
  bool take(Session &session);
  void take_answers();
  void sleep();
  bool arm();
  template <typename Function> bool each_session(Function function);
  void take_cm_events();
  void move_here(rdma_cm_id *id);
  void look_at_the_clock();
  void drop(Session &session, const char *why);
  void tear_down();

  const ServerOptions &options_;
  const RequestHandler &handler_;
  Pool &pool_, &aside_;
  const std::bitset<256> inline_services_; // all of them if there is no pool
  const std::function<void(bool)> gone_;
  std::function<void(rdma_cm_event &)> on_request_;
  Stats stats_;
  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
  std::vector<Answered> answered_; // empty between two turns
  Loop loop_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  std::list<Session> sessions_;
  Clock::time_point next_look_ = Clock::now(), end_ = Clock::time_point::max();
  bool is_over_ = false;
};

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Layer: ends. A thread with sessions: it takes their turns and their rdma_cm events, gives their
// requests to handlers, and sleeps for all of them. A server has one such thread or several, and
// each session belongs to one of them.
#pragma once

#include "session.hpp"

#include "rdmashared/server.hpp"

#include <rdmacommon/cm.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace rdmashared {

// A thread of a server, and its sessions.
class SessionLoop {
public:
  // @param pool       for handlers; without threads they run in this loop
  // @param background for what takes long
  // @param on_settled called in this thread for the host of each session that is established now,
  //                   or has gone before it was
  // @param on_closed  called in this thread for each session that was adopted and is no more
  // All of them outlive this object.
  SessionLoop(const ServerOptions &options, const RequestHandler &handler, Pool &pool,
              Pool &background, std::function<void(const std::string &host)> on_settled,
              std::function<void(const Session &)> on_closed);
  ~SessionLoop();
  SessionLoop(const SessionLoop &) = delete;
  SessionLoop &operator=(const SessionLoop &) = delete;

  // Sets the function that takes a client's request for a connection. Called before run(). Only the
  // first loop gets such requests.
  void on_request(std::function<void(rdma_cm_event &)> f) { on_request_ = std::move(f); }
  Loop &loop() { return loop_; }
  rdma_event_channel *channel() const { return channel_.get(); }
  const std::shared_ptr<Answers> &answers() const { return answers_; }
  Stats &stats() { return stats_; }
  void add_to(Metrics &metrics) const; // in its thread

  // Returns after end(). @throws Error if the host has no more of what a server needs
  void run();

  // Only the loop's thread calls these functions:

  // @param made of one session, which is this loop's then. @throws Error if it cannot be accepted;
  //             it stays there
  void adopt(std::list<Session> &made);
  // @param id is the session's then, if there is one that has this token
  Rejection accept_data(uint64_t token, rdmacommon::unique_cm_id &id);
  // Asks all clients to send no more, and closes those that are there at `when`.
  void finish_by(Clock::time_point when);
  void end() { is_over_ = true; }
  // Closes it. It is not this loop's any more.
  void take_down(std::list<Session> &whose, std::list<Session>::iterator session);

private:
  bool turn();
  bool take(Session &session);
  bool add_to_pool(const std::shared_ptr<Job> &job, bool is_urgent);
  void take_answers();
  void sleep();
  bool arm();
  template <typename Function> bool each_session(Function function);
  void take_cm_events();
  void move_here(rdma_cm_id *id);
  void check_deadlines();
  void drop(Session &session, const char *why, bool gave_up = false);
  void settle(Session &session); // it does not count as half open any more
  void tear_down();

  const ServerOptions &options_;
  const RequestHandler &handler_;
  Pool &pool_, &background_;
  const std::array<Session::Batches::Handling, 256> handling_; // one for each service
  const std::function<void(const std::string &)> on_settled_;
  const std::function<void(const Session &)> on_closed_;
  std::function<void(rdma_cm_event &)> on_request_;
  Stats stats_;
  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
  std::vector<Received *> answered_; // empty between two turns
  Loop loop_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  std::list<Session> sessions_;
  Clock::time_point next_check_ = Clock::now(), end_ = Clock::time_point::max();
  bool is_over_ = false;
};

} // namespace rdmashared

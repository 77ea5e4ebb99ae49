// SPDX-License-Identifier: MIT
// A thread's loop over sessions: their turns, their rdma_cm events, and their common sleep. A
// server has one such thread or several, and each session belongs to one of them. The first one has
// the listener as well: server_loop.hpp.
#pragma once

#include "errands.hpp"
#include "orders.hpp"
#include "poller.hpp"
#include "session.hpp"
#include "stand_in.hpp"
#include "stats.hpp"
#include "wire.hpp"
#include "session_memory.hpp"
#include "worker_pool.hpp"

#include "rdmashared/server.hpp"

#include <rdmacommon/cm.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace rdmashared {

class SessionLoop {
public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds tick{1000}; // how often it looks at the clock

  // @param options, pool, errands outlive run()
  // @param gone called in this thread for each session that was adopted and is no more
  SessionLoop(const ServerOptions &options, Pool<Job> &pool, Errands &errands,
              std::function<void(bool was_dropped)> gone);
  SessionLoop(const SessionLoop &) = delete;
  SessionLoop &operator=(const SessionLoop &) = delete;

  // Before run().
  void on_request(std::function<void(rdma_cm_event &)> f) { on_request_ = std::move(f); }
  // @param what is called when the descriptor is readable
  void watch(int fd, std::function<void()> what);

  // Returns after end(). If there are workers, two threads take turns, and "its thread" is the one
  // that has the loop. The other may be in a handler, and ends before this object goes. @throws
  // Error if the host has no more of what a server needs
  void run();

  // From any thread: an order is carried out in this loop's thread, at once if that is the one that
  // calls.
  void send(Orders::Order order);
  // run() has returned, or has not been called.
  void close() { orders_.close(); }
  Counts counts() const { return stats_.now(); }

  // For sessions that this loop will own.
  rdma_event_channel *channel() const { return channel_.get(); }
  const std::shared_ptr<Wake> &wake() const { return wake_; }
  Stats &stats() { return stats_; }

  // In its thread, as the rest is.
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
  void take_turns(bool has_loop);
  bool hold();
  template <typename Half> bool each_session(Half half);
  bool run_jobs();
  bool run_here();
  bool arm();
  void take_events(bool may_sleep);
  void look_at(void *mark);
  void take_cm_events();
  void move_here(rdma_cm_id *id);
  void look_at_the_clock();
  void drop(Session &session, const char *why);
  void tear_down();

  const ServerOptions &options_;
  Pool<Job> &pool_;
  Errands &errands_;
  const std::function<void(bool)> gone_;
  std::function<void(rdma_cm_event &)> on_request_;
  Stats stats_;
  Poller poller_;
  std::list<std::function<void()>> watched_;
  const std::shared_ptr<Wake> wake_ = std::make_shared<Wake>();
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  Orders orders_;
  StandIn stand_in_{poller_.fd(), tick};
  std::list<Session> sessions_;
  std::vector<Job> jobs_;
  bool has_looked_again_ = false; // for more jobs
  Clock::time_point next_look_ = Clock::now(), end_ = Clock::time_point::max();
  bool is_over_ = false;
  std::promise<void> over_;           // for run()
  std::vector<std::jthread> threads_; // go first: they wait for their end
};

} // namespace rdmashared

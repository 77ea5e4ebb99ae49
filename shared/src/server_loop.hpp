// The thread that has a server's connections: it accepts clients, as many as it is told, and serves them until it is stopped. It never
// sees what a handler computes, and a handler never sees a connection.
#pragma once

#include "errands.hpp"
#include "poller.hpp"
#include "session.hpp"
#include "stats.hpp"
#include "waiting.hpp"
#include "wire.hpp"
#include "work.hpp"
#include "worker_pool.hpp"

#include "rdmashared/server.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <string>

namespace rdmashared {

class ServerLoop {
public:
  ServerLoop(const ServerOptions &options, RequestHandler handler);
  ServerLoop(const ServerLoop &) = delete;
  ServerLoop &operator=(const ServerLoop &) = delete;

  void run();
  void stop() noexcept {
    ++stops_;
    stop_.ring();
  }

  uint16_t port() const;
  Counts counts() const { return stats_.now(); }
  uint32_t served() const { return served_; }
  uint32_t dropped() const { return dropped_; }
  uint32_t rejected() const { return rejected_; }

private:
  using Clock = std::chrono::steady_clock;

  bool has_ended() const;
  bool turn();
  bool arm();
  void look_around(bool may_sleep);
  void take_cm_events();
  void take_request(rdma_cm_event &event);
  Refusal open(rdmacommon::unique_cm_id &id, const Hello &hello);
  struct Opening {
    rdmacommon::unique_cm_id id;
    Hello hello;
    std::list<Session> made; // of one
  };
  void make(Opening &opening, Share share);
  void opened(Opening &opening, const std::exception_ptr &failure);
  void look_at_the_clock();
  void look_whether_to_stop();
  void drop(Session &session, const char *why);
  void bury();
  void take_down(std::list<Session> &whose, std::list<Session>::iterator session);
  void log(const std::string &line) const;

  const ServerOptions options_;
  const RequestHandler handler_;
  Stats stats_;
  Poller poller_;
  Event stop_;
  std::atomic<uint32_t> stops_{0}; // calls of stop()
  std::shared_ptr<Wake> wake_ = std::make_shared<Wake>();
  const std::shared_ptr<Budget> budget_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  rdmacommon::unique_cm_id listener_;
  std::list<Session> sessions_;
  Pool<Job> pool_;
  Clock::time_point next_look_ = Clock::now(), end_ = Clock::time_point::max();
  uint32_t stops_seen_ = 0;
  uint32_t opening_ = 0;     // sessions whose memory is being made
  uint64_t connections_ = 0; // ever
  uint32_t opened_ = 0;
  std::atomic<uint32_t> served_{0}, dropped_{0}, rejected_{0};
  Errands errands_{1}; // makes sessions and takes them down; goes before what these use
};

} // namespace rdmashared

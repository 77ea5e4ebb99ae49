// SPDX-License-Identifier: MIT
// A server's threads: the first one accepts clients, as many as it is told, and gives each to one
// of the threads, which serves it until the server is stopped. They never see what a handler
// computes, and a handler never sees a connection.
#pragma once

#include "errands.hpp"
#include "session.hpp"
#include "session_loop.hpp"
#include "wire.hpp"
#include "session_memory.hpp"
#include "worker_pool.hpp"

#include "rdmashared/server.hpp"

#include <rdmacommon/cm.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace rdmashared {

class ServerLoop {
public:
  ServerLoop(const ServerOptions &options, const RequestHandler &handler);
  ServerLoop(const ServerLoop &) = delete;
  ServerLoop &operator=(const ServerLoop &) = delete;

  void run();
  void stop() noexcept {
    ++stops_;
    stop_.ring();
  }

  uint16_t port() const;
  Counts counts() const;
  uint32_t served() const { return served_; }
  uint32_t dropped() const { return dropped_; }
  uint32_t rejected() const { return rejected_; }

private:
  using Clock = std::chrono::steady_clock;

  // One of the threads.
  struct Place {
    uint32_t number;
    std::unique_ptr<SessionLoop> loop;
    uint32_t sessions; // that it has, or will have; the first thread's
  };
  struct Opening {
    rdmacommon::unique_cm_id id;
    Hello hello;
    Place &place;
    std::list<Session> made; // of one
  };

  SessionLoop &first() { return *places_.front()->loop; }
  void take_request(rdma_cm_event &event);
  void answer(rdmacommon::unique_cm_id &id, const std::function<Refusal()> &accept);
  Refusal open(rdmacommon::unique_cm_id &id, const Hello &hello);
  void open_data(rdmacommon::unique_cm_id &id, uint64_t token);
  void make(Opening &opening, Share share);
  void begin(Opening &opening, const std::exception_ptr &failure, bool is_closing);
  void has_begun(Place &place, bool has_failed);
  void has_gone(Place &place, bool was_dropped);
  uint32_t sessions() const;
  void look_whether_to_stop();
  void look_whether_to_end();
  void log(const std::string &line) const;

  const ServerOptions options_;
  TimedHandler handler_;
  Pool<Job> pool_; // goes after the places: their threads join it
  Event stop_;
  std::atomic<uint32_t> stops_{0}; // calls of stop()
  const std::shared_ptr<Budget> budget_;
  std::vector<std::unique_ptr<Place>> places_;
  rdmacommon::unique_cm_id listener_;
  uint32_t stops_seen_ = 0;
  uint32_t opening_ = 0;     // sessions whose memory is being made
  uint64_t connections_ = 0; // ever
  uint32_t opened_ = 0;
  std::atomic<uint32_t> served_{0}, dropped_{0}, rejected_{0};
  Errands errands_{1}; // makes sessions and takes them down; goes before what these use
};

} // namespace rdmashared

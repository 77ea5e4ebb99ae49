// A server of slots: takes connections of shared clients, as many as it is told, and gives their requests to a handler, in a pool
// of threads. It never sees what a handler computes, and a handler never sees a connection.
//
//     Server server(options, where, [](std::span<const std::byte> request, std::span<std::byte> response) {
//       std::ranges::copy(request, response.begin()); // an echo
//       return request.size();
//     });
//     server.run(signals);
#pragma once

#include "errands.hpp"
#include "worker_pool.hpp"
#include "session.hpp"
#include "stats.hpp"
#include "waiting.hpp"
#include "wire.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>

namespace shared_client {

struct ServerOptions {
  uint32_t connections = 64;                 // at a time
  uint32_t clients = 0;                      // ends after so many connections; 0: never
  uint32_t slots = 1 << 16;                  // of one connection
  uint64_t memory = uint64_t{1} << 28;       // bytes for one connection
  uint64_t total_memory = uint64_t{1} << 30; // bytes for all of them together
  uint32_t workers = 1; // threads of the pool; 0: the handler runs where the connections are
  SessionOptions session;
  Waiting waiting = Waiting::events;
  std::chrono::milliseconds step{5000};  // how long a client may take to connect
  std::chrono::milliseconds grace{5000}; // and to finish when the server ends
};

class Server {
public:
  // Listens. @throws Error if it cannot
  Server(const ServerOptions &options, const rdmacommon::CmOptions &where, Handler handler);
  Server(const Server &) = delete;
  Server &operator=(const Server &) = delete;

  // Serves until `signals`, a signalfd, can be read: then it asks the clients to send no more, answers what has come, and
  // returns when the last one has gone, or `grace` has passed. A second signal ends that.
  void run(int signals);

  const Stats &stats() const { return stats_; }
  uint32_t served() const { return served_; } // connections that have ended in order
  uint32_t dropped() const {
    return dropped_;
  } // and those that the server has closed, since something was wrong
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
    uint64_t token, memory;
    std::list<Session> made; // of one
    std::exception_ptr failure;
  };
  void opened(Opening &opening);
  void look_at_the_clock();
  void begin_to_end();
  void drop(Session &session, const char *why);
  void bury();
  void take_down(std::list<Session> &whose, std::list<Session>::iterator session);
  void watch(int fd, void *mark);

  const ServerOptions options_;
  const Handler handler_;
  Stats stats_;
  rdmacommon::File epoll_, work_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  rdmacommon::unique_cm_id listener_;
  std::list<Session> sessions_; // of the pool's jobs, so the pool goes first
  Pool<Job> pool_;
  Clock::time_point next_look_ = Clock::now(), end_ = Clock::time_point::max();
  bool is_closing_ = false;
  int signals_ = -1;
  uint32_t opening_ = 0; // sessions whose memory is being made
  uint64_t memory_ = 0;  // of all sessions, until it has been given back
  uint32_t opened_ = 0, served_ = 0, dropped_ = 0, rejected_ = 0;
  Errands errands_{1}; // makes sessions and takes them down; goes before what these use
};

} // namespace shared_client

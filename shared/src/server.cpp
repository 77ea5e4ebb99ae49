// SPDX-License-Identifier: MIT
#include "rdmashared/server.hpp"

#include "server_loop.hpp"

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>
#include <utility>

namespace rdmashared {

namespace {

std::unique_ptr<ServerLoop> make_loop(const ServerOptions &options, const RequestHandler &handler) {
  const NoSignals no_signals; // for the threads that it makes
  return std::make_unique<ServerLoop>(options, handler);
}

} // namespace

Server::Server(const ServerOptions &options, RequestHandler handler)
    : loop_(make_loop(options, handler)) {}

Server::Server(const ServerOptions &options, Handler handler)
    : Server(options, handler ? RequestHandler([its = std::move(handler)](Request &&request) {
               request.reply(its(request.bytes(), request.room()));
             })
                              : nullptr) {}

Server::~Server() = default;

uint16_t Server::port() const {
  return loop_->port();
}

void Server::run() {
  loop_->run();
}

void Server::stop() noexcept {
  loop_->stop();
}

Counts Server::counts() const {
  return loop_->counts();
}

uint32_t Server::served() const {
  return loop_->served();
}

uint32_t Server::dropped() const {
  return loop_->dropped();
}

uint32_t Server::rejected() const {
  return loop_->rejected();
}

// [serve-until-signal]
namespace {

// SIGINT and SIGTERM wait for sigwait(), as long as this object lives.
class Blocked {
public:
  Blocked() {
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, &before_);
  }
  ~Blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Blocked(const Blocked &) = delete;
  Blocked &operator=(const Blocked &) = delete;

  sigset_t ends;

private:
  sigset_t before_;
};

// A thread that makes them stop().
class Listener {
public:
  Listener(Server &server, const sigset_t &ends) {
    const NoSignals no_signals;
    thread_ = std::thread([this, &server, &ends] {
      for (int signal; sigwait(&ends, &signal) == 0 && !is_over_;)
        server.stop();
    });
  }
  ~Listener() {
    is_over_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM); // to that thread alone
    thread_.join();
  }
  Listener(const Listener &) = delete;
  Listener &operator=(const Listener &) = delete;

private:
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

} // namespace

void serve_until_signal(Server &server) {
  const Blocked blocked;
  const Listener listener(server, blocked.ends);
  server.run();
}
// [serve-until-signal]

} // namespace rdmashared

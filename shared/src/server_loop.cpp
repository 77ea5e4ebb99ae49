// SPDX-License-Identifier: MIT
#include "server_loop.hpp"

#include "one_at_a_time.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <arpa/inet.h>

#include <exception>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

namespace {

ServerOptions with_log(ServerOptions options) {
  if (options.threads > 1)
    options.log = one_at_a_time(std::move(options.log));
  return options;
}

} // namespace

ServerLoop::ServerLoop(const ServerOptions &options, const RequestHandler &handler)
    : options_(with_log(options)), handler_(handler), pool_(options.workers),
      budget_(std::make_shared<Budget>(options.total_memory)) {
  if (options.group == 0 || options.group > SlotRing::longest_run || options.window == 0 ||
      options.connections == 0 || options.threads == 0 || !handler)
    throw Error("ServerOptions",
                "group must be 1 to 255; window, connections and threads at least 1; and the "
                "handler must not be empty");
  for (uint32_t i = 0; i < options.threads; ++i) {
    places_.push_back(std::make_unique<Place>(Place{.number = i, .loop = {}, .sessions = 0}));
    Place &place = *places_.back();
    place.loop =
        std::make_unique<SessionLoop>(options_, pool_, errands_, [this, &place](bool was_dropped) {
          has_gone(place, was_dropped);
        });
  }
  CmAddress address = cm_address(options.host, options.port);
  listener_ = cm_listen(first().channel(), address, static_cast<int>(options.connections));
  first().on_request([this](rdma_cm_event &event) { take_request(event); });
  first().watch(errands_.fd(), [this] { errands_.take_back(); });
  first().watch(stop_.fd(), [this] {
    stop_.take_back();
    look_whether_to_stop();
  });
}

uint16_t ServerLoop::port() const {
  return ntohs(rdma_get_src_port(listener_.get()));
}

Counts ServerLoop::counts() const {
  Counts all;
  for (const auto &place : places_)
    add(all, place->loop->counts());
  return all;
}

void ServerLoop::log(const std::string &line) const {
  if (options_.log)
    options_.log(line);
}

// [server-run]
void ServerLoop::run() {
  std::vector<std::jthread> others; // wait for their end
  const auto end = [&] {
    for (const auto &place : places_)
      place->loop->send([its = place->loop.get()] { its->end(); });
    others.clear();
    for (const auto &place : places_)
      place->loop->close();
  };
  try {
    for (const auto &place : std::span(places_).subspan(1)) {
      const NoSignals no_signals;
      others.emplace_back([this, its = place->loop.get()] {
        try {
          its->run();
        } catch (...) { // comes out of the first thread's run()
          first().send([failure = std::current_exception()] { std::rethrow_exception(failure); });
        }
      });
    }
    look_whether_to_stop(); // before it has begun
    first().run();
  } catch (...) {
    end();
    throw;
  }
  end();
}
// [server-run]

uint32_t ServerLoop::sessions() const {
  uint32_t all = 0;
  for (const auto &place : places_)
    all += place->sessions;
  return all;
}

void ServerLoop::look_whether_to_end() {
  const bool enough = options_.clients > 0 && served_ + dropped_ >= options_.clients;
  if ((stops_seen_ > 0 || enough) && sessions() == 0)
    first().end();
}

// [server-end]
void ServerLoop::look_whether_to_stop() {
  const uint32_t stops = stops_.load();
  if (stops == stops_seen_)
    return;
  const auto when = stops == 1 ? Clock::now() + options_.grace : Clock::now();
  const bool is_first = std::exchange(stops_seen_, stops) == 0;
  if (is_first)
    log("closing: " + std::to_string(sessions() - opening_) + " clients may finish");
  for (const auto &place : places_) {
    SessionLoop &loop = *place->loop;
    loop.send([&loop, when, is_first] { loop.finish_by(when, is_first); });
  }
  look_whether_to_end();
}
// [server-end]

} // namespace rdmashared

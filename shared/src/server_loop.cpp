#include "server_loop.hpp"

#include <rdmacommon/check.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds tick(1000);

} // namespace

ServerLoop::ServerLoop(const ServerOptions &options, RequestHandler handler)
    : options_(options), handler_(std::move(handler)),
      budget_(std::make_shared<Budget>(options.total_memory)), pool_(options.workers) {
  if (options.group == 0 || options.group > SlotRing::longest_run || options.window == 0 ||
      options.connections == 0 || !handler_)
    throw Error("the server's options",
                "a group has 1 to 255 slots; window and connections are not 0; there is a handler",
                Where::here());
  CmAddress address = cm_address(options.host, options.port);
  listener_ = cm_listen(channel_.get(), address, static_cast<int>(options.connections));
  // The mark of an event: a session, or one of these members.
  poller_.watch(channel_->fd, {.ptr = &channel_});
  poller_.watch(stop_.fd(), {.ptr = &stop_});
  poller_.watch(wake_->event.fd(), {.ptr = &wake_});
  poller_.watch(errands_.fd(), {.ptr = &errands_});
}

uint16_t ServerLoop::port() const {
  return ntohs(rdma_get_src_port(listener_.get()));
}

void ServerLoop::log(const std::string &line) const {
  if (options_.log)
    options_.log(line);
}

// [server-run]
void ServerLoop::run() {
  wake_->thread = std::this_thread::get_id();
  look_whether_to_stop(); // before it has begun
  Patience patience(options_.waiting);
  for (uint32_t turns = 0; !has_ended();) {
    if (!patience.is_at_its_end(turn())) {
      if (++turns % busy_turns == 0)
        look_around(false);
    } else if (arm())
      look_around(true);
    bury();
  }
}

bool ServerLoop::has_ended() const {
  const bool enough = options_.clients > 0 && served_ + dropped_ >= options_.clients;
  return (stops_seen_ > 0 || enough) && sessions_.empty() && opening_ == 0;
}

// A client's mistake ends that client's connection, and nothing else.
bool ServerLoop::turn() {
  bool was_busy = false;
  for (Session &session : sessions_)
    try {
      was_busy |= session.turn();
    } catch (const std::exception &error) {
      drop(session, error.what());
    }
  return was_busy;
}
// [server-run]

bool ServerLoop::arm() {
  return std::ranges::all_of(sessions_, &Session::arm);
}

void ServerLoop::look_around(bool may_sleep) {
  const auto events = poller_.wait(std::min(next_look_, end_), may_sleep);
  stats_.sleeps += may_sleep;
  stats_.other_calls += !may_sleep;
  for (const epoll_event &event : events) {
    if (event.data.ptr == &channel_)
      take_cm_events();
    else if (event.data.ptr == &wake_) {
      stats_.other_calls += 1;
      wake_->event.take_back();
    } else if (event.data.ptr == &errands_) {
      stats_.other_calls += 1;
      errands_.take_back();
    } else if (event.data.ptr == &stop_) {
      stop_.take_back();
      look_whether_to_stop();
    } else
      static_cast<Session *>(event.data.ptr)->on_completion_event();
  }
  look_at_the_clock();
}

// [server-events]
void ServerLoop::take_cm_events() {
  while (const unique_cm_event event = take_cm_event(channel_.get())) {
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      take_request(*event);
      continue;
    }
    auto *session = static_cast<Session *>(event->id->context);
    if (session == nullptr) // the listener's
      continue;
    if (event->event == RDMA_CM_EVENT_ESTABLISHED)
      session->established();
    else if (event->event == RDMA_CM_EVENT_DISCONNECTED)
      session->close();
    else if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
      drop(*session, name_of(event->event));
  }
}

// [server-events]

void ServerLoop::look_at_the_clock() {
  const auto now = Clock::now();
  if (now >= end_) {
    end_ = Clock::time_point::max(); // once
    for (Session &session : sessions_)
      session.close();
  }
  if (now < next_look_)
    return;
  next_look_ = now + tick;
  for (Session &session : sessions_)
    try {
      if (session.is_established() && !session.is_closed())
        session.look_whether_alive();
      else if (now - session.began() > options_.connect_within)
        drop(session, "it does not finish to connect");
    } catch (const std::exception &error) {
      drop(session, error.what());
    }
}

// [server-end]
void ServerLoop::look_whether_to_stop() {
  const uint32_t stops = stops_.load();
  if (stops == stops_seen_)
    return;
  end_ = stops == 1 ? Clock::now() + options_.grace : Clock::now();
  if (std::exchange(stops_seen_, stops) > 0)
    return;
  log("closing: " + std::to_string(sessions_.size()) + " clients may finish");
  for (Session &session : sessions_)
    session.say_closing();
}
// [server-end]

void ServerLoop::drop(Session &session, const char *why) {
  if (session.is_closed())
    return;
  log(std::string("dropped a client: ") + why);
  session.was_dropped = true;
  session.close();
}

} // namespace rdmashared

#include "server.hpp"

#include <rdmacommon/check.hpp>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <span>
#include <utility>

namespace shared_client {

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

constexpr uint32_t busy_turns = 64; // with always something to do, look around each so many
constexpr milliseconds tick(1000);

} // namespace

Server::Server(const ServerOptions &options, const CmOptions &where, Handler handler)
    : options_([&] {
        ServerOptions own = options;
        own.session.finished =
            [this] { // a pool's thread: the one with the connections may be asleep
              const uint64_t one = 1;
              if (write(work_.get(), &one, sizeof one) < 0 && errno != EAGAIN)
                std::perror("eventfd");
            };
        if (own.workers == 0)
          own.session.finished = nullptr;
        return own;
      }()),
      handler_(std::move(handler)),
      epoll_(check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      work_(check_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      listener_(cm_listen(channel_.get(), where, static_cast<int>(options.connections))),
      pool_(options.workers) {
  watch(channel_->fd, &channel_);
  watch(work_.get(), &work_);
  watch(errands_.fd(), &errands_);
}

// @param mark of the events: a session, or one of ours
void Server::watch(int fd, void *mark) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = mark}};
  check_errno(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

// [server-run]
void Server::run(int signals) {
  signals_ = signals;
  watch(signals, &signals_);
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

bool Server::has_ended() const {
  const bool enough = options_.clients > 0 && served_ + dropped_ >= options_.clients;
  return (is_closing_ || enough) && sessions_.empty() && opening_ == 0;
}

// What one client does wrong ends that client's connection, and nothing else.
bool Server::turn() {
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

bool Server::arm() {
  return std::ranges::all_of(sessions_, &Session::arm);
}

void Server::look_around(bool may_sleep) {
  const auto next = std::min(next_look_, end_);
  const auto left = std::chrono::ceil<milliseconds>(next - Clock::now()).count();
  std::array<epoll_event, 64> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                 may_sleep ? static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)) : 0);
  if (count < 0 && errno != EINTR)
    throw_errno(errno, "epoll_wait");
  stats_.sleeps += may_sleep;
  stats_.other_calls += !may_sleep;
  for (const epoll_event &event :
       std::span(events.data(), static_cast<size_t>(std::max(count, 0)))) {
    if (event.data.ptr == &channel_)
      take_cm_events();
    else if (event.data.ptr == &work_) {
      uint64_t finished;
      stats_.other_calls += 1;
      if (read(work_.get(), &finished, sizeof finished) < 0 && errno != EAGAIN)
        throw_errno(errno, "eventfd");
    } else if (event.data.ptr == &errands_) {
      stats_.other_calls += 1;
      errands_.take_back();
    } else if (event.data.ptr == &signals_)
      begin_to_end();
    else
      static_cast<Session *>(event.data.ptr)->on_completion_event();
  }
  look_at_the_clock();
}

// [server-events]
void Server::take_cm_events() {
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

void Server::look_at_the_clock() {
  const auto now = Clock::now();
  if (now >= end_) {
    end_ = Clock::time_point::max(); // or we would not sleep while the pool ends what it has begun
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
      else if (now - session.began() > options_.step)
        drop(session, "it does not finish to connect");
    } catch (const std::exception &error) {
      drop(session, error.what());
    }
}

// [server-end]
void Server::begin_to_end() {
  signalfd_siginfo which{};
  if (read(signals_, &which, sizeof which) < 0)
    return;
  end_ = is_closing_ ? Clock::now() : Clock::now() + options_.grace;
  if (std::exchange(is_closing_, true))
    return;
  std::printf("closing: %zu clients may finish\n", sessions_.size());
  for (Session &session : sessions_)
    session.say_closing();
}
// [server-end]

void Server::drop(Session &session, const char *why) {
  if (session.is_closed())
    return;
  std::fprintf(stderr, "dropped a client: %s\n", why);
  session.was_dropped = true;
  session.close();
}

} // namespace shared_client

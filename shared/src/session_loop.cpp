// SPDX-License-Identifier: MIT
#include "session_loop.hpp"

#include "waiting.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

SessionLoop::SessionLoop(const ServerOptions &options, Pool<Job> &pool, Errands &errands,
                         std::function<void(bool)> gone)
    : options_(options), pool_(pool), errands_(errands), gone_(std::move(gone)) {
  // The mark of an event: a session, something in watched_, or one of these members.
  poller_.watch(channel_->fd, {.ptr = &channel_});
  poller_.watch(wake_->event.fd(), {.ptr = wake_.get()});
  watch(orders_.fd(), [this] { orders_.carry_out(); });
}

void SessionLoop::watch(int fd, std::function<void()> what) {
  watched_.push_back(std::move(what));
  poller_.watch(fd, {.ptr = &watched_.back()});
}

void SessionLoop::send(Orders::Order order) {
  if (std::this_thread::get_id() == wake_->thread)
    order();
  else
    orders_.send(std::move(order));
}

// [two-threads]
void SessionLoop::run() {
  if (options_.workers == 0)
    take_turns(true);
  else {
    const NoSignals no_signals;
    for (const bool has_loop : {true, false})
      threads_.emplace_back([this, has_loop] { take_turns(has_loop); });
  }
  over_.get_future().get();
}

void SessionLoop::take_turns(bool has_loop) {
  try {
    bool is_over = false;
    while (!is_over && (has_loop || stand_in_.stand_by())) {
      is_over = hold();
      has_loop = false;
    }
    if (is_over)
      over_.set_value();
  } catch (...) {
    over_.set_exception(std::current_exception());
  }
  stand_in_.end(); // the other thread ends, too
}
// [two-threads]

// [session-loop]
// @return false if the other thread has the loop now
bool SessionLoop::hold() {
  wake_->thread = std::this_thread::get_id();
  take_events(false); // at what has woken this thread, if it stood by
  Patience patience(options_.waiting);
  for (uint32_t turns = 0; !is_over_;) {
    bool was_busy = each_session([this](Session &session) { return session.take(jobs_); });
    if (!run_jobs())
      return false;
    was_busy |= each_session([](Session &session) { return session.send(); });
    if (!patience.has_ended(was_busy || !jobs_.empty())) {
      if (++turns % busy_turns == 0 && !has_looked_again_) // what was armed is polled first
        take_events(false);
    } else if (arm())
      take_events(true);
    tear_down();
  }
  return true;
}

// A client's mistake ends that client's connection, and nothing else.
// @return whether `half` has found something to do
template <typename Half> bool SessionLoop::each_session(Half half) {
  bool was_busy = false;
  for (Session &session : sessions_)
    try {
      was_busy |= half(session);
    } catch (const std::exception &error) {
      drop(session, error.what());
    }
  return was_busy;
}
// [session-loop]

// [run-jobs]
// A short handler of a request that comes alone runs here, without a wake of another thread. The
// pool has the others.
// @return false if the other thread has the loop now
bool SessionLoop::run_jobs() {
  const bool is_alone = jobs_.size() == 1 && jobs_.front().handler->is_short() &&
                        end_ == Clock::time_point::max() &&
                        std::ranges::all_of(sessions_, &Session::has_nothing_else);
  if (is_alone && stand_in_.stands_by() && pool_.join()) {
    if (arm())
      return run_here();
    pool_.leave();
    if (!std::exchange(has_looked_again_, true)) // something may have come: the next turn looks
      return true;
  }
  has_looked_again_ = false;
  stats_.wakes += pool_.add(jobs_);
  return true;
}

// From leave() to come_back(), the loop and all its members can be the other thread's.
bool SessionLoop::run_here() {
  {
    Job job = std::move(jobs_.front());
    jobs_.clear();
    has_looked_again_ = false;
    stand_in_.leave();
    job();
  }
  pool_.leave();
  return stand_in_.come_back();
}
// [run-jobs]

bool SessionLoop::arm() {
  bool has_nothing = true;
  for (Session &session : sessions_)
    has_nothing &= session.arm();
  return has_nothing;
}

void SessionLoop::take_events(bool may_sleep) {
  const auto events = poller_.wait(std::min(next_look_, end_), may_sleep);
  stats_.sleeps += may_sleep;
  stats_.other_calls += !may_sleep;
  for (const epoll_event &event : events)
    look_at(event.data.ptr);
  look_at_the_clock();
}

void SessionLoop::look_at(void *mark) {
  const auto is_it = [mark](const auto &what) { return &what == mark; };
  if (mark == &channel_)
    take_cm_events();
  else if (mark == wake_.get()) {
    stats_.other_calls += 1;
    wake_->event.take_back();
  } else if (const auto what = std::ranges::find_if(watched_, is_it); what != watched_.end()) {
    stats_.other_calls += 1;
    (*what)();
  } else
    static_cast<Session *>(mark)->on_completion_event();
}

// [session-events]
void SessionLoop::take_cm_events() {
  while (const unique_cm_event event = take_cm_event(channel_.get())) {
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      on_request_(*event);
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
// [session-events]

// [adopt]
// The first loop has the listener, so a client's events come there. From here on they come to this
// loop. Events that have come before and that nobody has fetched move as well, but the kernel does
// not wake this loop for them.
void SessionLoop::move_here(rdma_cm_id *id) {
  if (id->channel == channel_.get())
    return;
  check_errno(rdma_migrate_id(id, channel_.get()), "rdma_migrate_id");
  orders_.send([this] { take_cm_events(); });
}

void SessionLoop::adopt(std::list<Session> &made) {
  Session &session = made.front();
  poller_.watch(session.fd(), {.ptr = &session});
  move_here(session.id());
  session.accept();
  sessions_.splice(sessions_.end(), made);
}

Refusal SessionLoop::accept_data(uint64_t token, unique_cm_id &id) {
  const auto whose = std::ranges::find(sessions_, token, &Session::token);
  if (whose == sessions_.end() || whose->is_closed())
    return Refusal::stranger;
  move_here(id.get());
  whose->accept_data(id);
  return Refusal::none;
}
// [adopt]

void SessionLoop::look_at_the_clock() {
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

void SessionLoop::finish_by(Clock::time_point when, bool says_so) {
  end_ = when;
  if (says_so)
    for (Session &session : sessions_)
      session.say_closing();
}

void SessionLoop::drop(Session &session, const char *why) {
  if (session.is_closed())
    return;
  if (options_.log)
    options_.log(std::string("dropped a client: ") + why);
  session.was_dropped = true;
  session.close();
}

void SessionLoop::tear_down() {
  for (auto next = sessions_.begin(); next != sessions_.end();)
    if (const auto session = next++; session->is_closed()) {
      gone_(session->was_dropped);
      take_down(sessions_, session);
    }
}

// Takes as long as making it, so the same thread does it. No event leads to the session any more.
void SessionLoop::take_down(std::list<Session> &whose, std::list<Session>::iterator session) {
  poller_.forget(session->fd());
  session->leave_channel();
  const auto gone = std::make_shared<std::list<Session>>();
  gone->splice(gone->end(), whose, session);
  errands_.send([gone] { gone->clear(); }, [](const std::exception_ptr &) {});
}

} // namespace rdmashared

// SPDX-License-Identifier: MIT
#include "session_loop.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

namespace {

constexpr std::chrono::milliseconds tick(1000); // the interval at which a loop checks its sessions

using Batches = Session::Batches;

std::array<Batches::Handling, 256> handling_of(const ServerOptions &options, bool has_pool) {
  std::array<Batches::Handling, 256> made{};
  for (size_t service = 0; service < made.size(); ++service)
    made[service] = !has_pool || options.inline_services.test(service) ? Batches::at_once
                    : options.urgent_services.test(service)            ? Batches::urgent
                                                                       : Batches::usual;
  if (options.health_service)
    made[*options.health_service] = Batches::at_once;
  return made;
}

} // namespace

SessionLoop::SessionLoop(const ServerOptions &options, const RequestHandler &handler, Pool &pool,
                         Pool &background, std::function<void(const std::string &)> on_settled,
                         std::function<void(const Session &)> on_closed)
    : options_(options), handler_(handler), pool_(pool), background_(background),
      handling_(handling_of(options, pool.size() > 0)), on_settled_(std::move(on_settled)),
      on_closed_(std::move(on_closed)) {
  loop_.watch(channel_->fd, [this] { take_cm_events(); });
  loop_.watch(
      answers_->event().fd(), [] {}, true); // its turn takes the answers
}

SessionLoop::~SessionLoop() {
  answers_->close(); // and what handlers say from now on is dropped
  loop_.close();
}

void SessionLoop::run() {
  answers_->set_thread();
  IdlePolicy idle_policy(options_.waiting);
  int looked = 0;
  for (uint32_t turns = 1; !is_over_; ++turns) {
    if (turn())
      idle_policy.note(std::exchange(looked, 0), true);
    else if (looked < idle_policy.looks()) {
      ++looked;
      sched_yield();
    } else {
      idle_policy.note(std::exchange(looked, 0), false);
      if (arm() || !turn())
        sleep();
    }
    if (turns % busy_turns == 0) {
      loop_.wait(Clock::now(), false);
      check_deadlines();
    }
    tear_down();
  }
}

// [server-turn]
bool SessionLoop::turn() {
  bool was_busy = each_session([this](Session &session) { return take(session); });
  take_answers();
  was_busy |= each_session([](Session &session) { return session.send(); });
  return was_busy;
}

bool SessionLoop::take(Session &session) {
  Batches came;
  const bool was_busy = session.take(came, handling_);
  if (auto &batch = came.batches[Batches::at_once])
    Job(std::move(batch)).handle(handler_, stats_);
  for (const auto handling : {Batches::urgent, Batches::usual})
    if (auto &batch = came.batches[handling]) { // each of the pool's threads may take part
      const auto job = std::make_shared<Job>(std::move(batch));
      for (size_t i = std::min(pool_.size(), job->size()); i > 0; --i)
        stats_.wakes += add_to_pool(job, handling == Batches::urgent);
    }
  return was_busy;
}

// A job that is not urgent makes room for one that is, between two requests.
// @return whether a thread that slept was woken
bool SessionLoop::add_to_pool(const std::shared_ptr<Job> &job, bool is_urgent) {
  return pool_.add(
      [this, job, is_urgent] {
        if (!job->handle(handler_, stats_, is_urgent ? nullptr : &pool_))
          add_to_pool(job, is_urgent);
      },
      is_urgent);
}
// [server-turn]

void SessionLoop::take_answers() {
  answers_->take(answered_);
  for (Received *request : answered_)
    if (Session *session = request->batch->state->session)
      session->answered(*request);
    else
      request->done();
  answered_.clear();
}

// A client's mistake ends that client's connection, and nothing else.
template <typename Function> bool SessionLoop::each_session(Function function) {
  bool was_busy = false;
  for (Session &session : sessions_)
    try {
      was_busy |= function(session);
    } catch (const std::exception &error) {
      drop(session, error.what());
    }
  return was_busy;
}

// @return false if one was not armed: what has completed before that is not told, so look again
bool SessionLoop::arm() {
  return !each_session([](Session &session) { return !session.arm(); });
}

void SessionLoop::sleep() {
  if (answers_->begin_sleep()) {
    stats_.sleeps += 1;
    loop_.wait(std::min({next_check_, end_}), true);
  }
  answers_->end_sleep();
  check_deadlines();
}

void SessionLoop::take_cm_events() {
  while (const unique_cm_event event = take_cm_event(channel_.get())) {
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      on_request_(*event);
      continue;
    }
    auto *session = static_cast<Session *>(event->id->context);
    if (session == nullptr) // the listener's
      continue;
    if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
      session->established();
      if (session->is_established())
        settle(*session);
    } else if (event->event == RDMA_CM_EVENT_DISCONNECTED && !session->lacks_data_connection())
      session->close(); // a client that leaves earlier has not finished connecting
    else if (event->event == RDMA_CM_EVENT_UNREACHABLE && session->is_established())
      continue; // RTU never came, but messages do; probe_peer() finds when the client leaves
    else if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
      drop(*session, name_of(event->event), !session->is_established());
  }
}

// The first loop has the listener, so a client's events come there. From here on they come to this
// loop. Events that have come before and that nobody has fetched move as well, but the kernel does
// not wake this loop for them.
void SessionLoop::move_here(rdma_cm_id *id) {
  if (id->channel == channel_.get())
    return;
  check_errno(rdma_migrate_id(id, channel_.get()), "rdma_migrate_id");
  loop_.send([this] { take_cm_events(); });
}

void SessionLoop::adopt(std::list<Session> &made) {
  Session &session = made.front();
  loop_.watch(session.fd(), [this, &session] {
    try {
      session.on_completion_event();
    } catch (const std::exception &error) { // its device is gone, for example
      drop(session, error.what());
    }
  });
  move_here(session.id());
  session.accept();
  sessions_.splice(sessions_.end(), made);
}

Rejection SessionLoop::accept_data(uint64_t token, unique_cm_id &id) {
  const auto whose = std::ranges::find(sessions_, token, &Session::token);
  if (whose == sessions_.end() || whose->is_closed())
    return Rejection::stranger;
  move_here(id.get());
  whose->accept_data(id);
  return Rejection::none;
}

void SessionLoop::check_deadlines() {
  const auto now = Clock::now();
  if (now >= end_) {
    end_ = Clock::time_point::max(); // once
    for (Session &session : sessions_)
      session.close();
  }
  if (now < next_check_)
    return;
  next_check_ = now + tick;
  for (Session &session : sessions_)
    if (session.is_established())
      settle(session);
    else if (now - session.began() > options_.connect_within)
      drop(session, "it does not finish connecting", true);
  each_session([](Session &session) { return session.probe_peer(); });
}

void SessionLoop::finish_by(Clock::time_point when) {
  end_ = when;
  for (Session &session : sessions_)
    session.say_closing();
}

void SessionLoop::drop(Session &session, const char *why, bool gave_up) {
  if (session.is_closed())
    return;
  options_.log(Level::warning, std::string("dropped a client: ") + why);
  session.was_dropped = true;
  session.gave_up = gave_up;
  session.close();
}

void SessionLoop::settle(Session &session) {
  if (!std::exchange(session.is_settled, true))
    on_settled_(session.client().host);
}

void SessionLoop::tear_down() {
  for (auto next = sessions_.begin(); next != sessions_.end();)
    if (const auto session = next++; session->is_closed()) {
      settle(*session);
      on_closed_(*session);
      take_down(sessions_, session);
    }
}

void SessionLoop::add_to(Metrics &metrics) const {
  for (const Session &session : sessions_) {
    const Client &client = session.client();
    metrics.add("client_requests", "Requests of a client that have no answer.",
                Metrics::Type::gauge, session.in_work(),
                Metrics::label("connection", std::to_string(client.connection)) + ',' +
                    Metrics::label("host", client.host));
  }
}

// Takes as long as making it, so the same thread does it. No event leads to the session any more.
void SessionLoop::take_down(std::list<Session> &whose, std::list<Session>::iterator session) {
  session->close(); // before its ids leave the channel: rdma_disconnect() would wait after that
  loop_.forget(session->fd());
  session->leave_channel();
  const auto gone = std::make_shared<std::list<Session>>();
  gone->splice(gone->end(), whose, session);
  run_in_background(
      background_, loop_, [gone] { gone->clear(); }, [](const std::exception_ptr &) {});
}

} // namespace rdmashared

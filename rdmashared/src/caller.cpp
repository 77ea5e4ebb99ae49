// SPDX-License-Identifier: MIT
// Layer: API. The worker's calls: requests, and what becomes of them.
#include "rdmashared/caller.hpp"

#include "caller_area.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace rdmashared {

using rdmacommon::check_errno, rdmacommon::Error, rdmacommon::File, rdmacommon::Link,
    rdmacommon::Where;
using std::chrono::milliseconds;

// ---- a request under way

const char *words_for(Outcome outcome) {
  switch (outcome) {
  case Outcome::response:
    return "it has been answered";
  case Outcome::refused:
    return "the server could not answer it";
  case Outcome::lost:
    return "the connection broke while it was under way; the server may have carried it out, or "
           "not";
  case Outcome::not_sent:
    return "there is no connection to the server; it has not been sent";
  case Outcome::expired:
    return "its time limit passed before the server began; it has not been carried out";
  case Outcome::answer_too_long:
    return "its response is too long";
  case Outcome::timed_out:
    return "no answer within its time limit; the server may have carried it out, or not";
  case Outcome::no_room:
    return "there is no room for it: in the area of this process, or at a server that answers "
           "nothing";
  case Outcome::too_long:
    return "it, or its response, is longer than the slots have room for";
  case Outcome::sender_gone:
    return "the sender is gone";
  }
  return "its outcome is unknown";
}

RequestFailed::RequestFailed(Outcome outcome, const std::string &detail, Where where)
    : Error("the request", words_for(outcome) + (detail.empty() ? "" : ": " + detail), where),
      outcome_(outcome), server_said_(outcome == Outcome::refused ? detail : "") {}

// The slots are free once the sender has ended the request: soon, or, if its response can have any
// length, once the answer has come.
void Pending::drop() {
  CallerArea &area = *std::exchange(area_, nullptr);
  if (getpid() != area.process_) // a forked child has no area
    return;
  const AreaUse::Allocation place{.slot = slot_, .slots = slots_, .buffer = buffer_};
  if (area.area().answer(slot_).outcome.load(std::memory_order_acquire) != 0) {
    area.free(place);
    return;
  }
  {
    const std::lock_guard lock(area.mutex_);
    area.use_.give_up(place);
    area.submit(slot_ | cancels);
    area.announce();
  }
  area.wake_those_without_room(); // the answer may have come before give_up()
}

Pending &Pending::operator=(Pending &&other) noexcept {
  if (this != &other) {
    std::destroy_at(this);
    std::construct_at(this, std::move(other));
  }
  return *this;
}

bool Pending::is_answered() const {
  return area_ && area_->area().answer(slot_).outcome.load(std::memory_order_acquire) != 0;
}

Outcome Pending::answered() const {
  return static_cast<Outcome>(area_->area().answer(slot_).outcome - 1);
}

bool Pending::is_ready() const {
  return is_answered() || (area_ && (area_->is_known_to_be_over() || Clock::now() >= deadline_));
}

// @return nothing if the time has come, and there is no outcome
std::optional<Outcome> Pending::outcome_by(Clock::time_point until) {
  if (!area_)
    throw Error("the response", "it has been collected already", where_);
  switch (area_->sleep_until([this] { return is_answered(); }, std::min(until, deadline_), how_)) {
  case CallerArea::Slept::done:
    return answered();
  case CallerArea::Slept::alone:
    return Outcome::lost; // the sender has ended, and may have sent it
  case CallerArea::Slept::late:
    break;
  }
  return until < deadline_ ? std::nullopt : std::optional(Outcome::timed_out);
}

// Calls `use` with the response, or with what the server's handler says, and gives the slots back.
void Pending::collect(Outcome outcome, const InPlace &use) {
  const Area &area = area_->area();
  const Answer &answer = area.answer(slot_);
  if (answer.outcome.load(std::memory_order_acquire) != static_cast<uint32_t>(outcome) + 1)
    return drop(); // there is no answer, or it came too late
  const struct Free {
    Pending &pending;
    ~Free() {
      std::exchange(pending.area_, nullptr)
          ->free({.slot = pending.slot_, .slots = pending.slots_, .buffer = pending.buffer_});
    }
  } when_used{*this};
  const size_t length = answer.length;
  use(buffer_ != AreaUse::no_buffer && outcome == Outcome::response
          ? area.response_buffer(buffer_).first(length)
          : area.slots(slot_).first(length));
}

bool Pending::wait_until(Clock::time_point until, const InPlace &in_place) {
  const auto outcome = is_answered() ? answered() : outcome_by(until);
  if (!outcome)
    return false;
  if (*outcome != Outcome::response)
    throw_failed(*outcome);
  collect(*outcome, in_place);
  return true;
}

bool Pending::wait(milliseconds limit, const InPlace &in_place) {
  return wait_until(is_answered() ? deadline_ : rdmacommon::deadline_in(limit), in_place);
}

void Pending::throw_failed(Outcome outcome) {
  std::string said;
  collect(outcome, [&](std::span<const std::byte> bytes) {
    said.assign(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  });
  throw RequestFailed(outcome, said, where_);
}

std::optional<std::vector<std::byte>> Pending::wait(milliseconds limit) {
  std::vector<std::byte> copy;
  if (!wait(limit,
            [&](std::span<const std::byte> bytes) { copy.assign(bytes.begin(), bytes.end()); }))
    return std::nullopt;
  return copy;
}

std::vector<std::byte> Pending::wait() {
  std::vector<std::byte> copy;
  wait_until(deadline_,
             [&](std::span<const std::byte> bytes) { copy.assign(bytes.begin(), bytes.end()); });
  return copy;
}

Response Pending::take() {
  Response response{.outcome = *outcome_by(deadline_)};
  collect(response.outcome, [&](std::span<const std::byte> bytes) {
    response.bytes.assign(bytes.begin(), bytes.end());
  });
  return response;
}

// ---- all requests of a process

Caller::Caller(Link link, Waiting waiting)
    : area_(std::make_unique<CallerArea>(std::move(link), waiting, std::chrono::seconds(5))) {}

Caller::Caller(std::unique_ptr<CallerArea> area) : area_(std::move(area)) {}

Caller::Caller(Caller &&) noexcept = default;

Caller &Caller::operator=(Caller &&) noexcept = default;

Caller::~Caller() = default;

Caller Caller::join(const std::string &name, Waiting waiting, milliseconds limit, Where where) {
  Link link = connect_to(name, limit, where);
  return Caller(std::make_unique<CallerArea>(std::move(link), waiting, limit));
}

uint32_t Caller::largest_response() const {
  return area_->area().shape().largest;
}

Response Caller::call(std::span<const std::byte> bytes, const RequestOptions &options) {
  const auto deadline = rdmacommon::deadline_in(options.limit);
  AreaUse::Allocation place;
  const Outcome outcome = area_->request(bytes, options, Want::response, deadline, place);
  if (outcome != Outcome::response)
    return {.outcome = outcome};
  return area_->pending(place, options, deadline).take();
}

std::vector<std::byte> Caller::request(std::span<const std::byte> bytes,
                                       const RequestOptions &options) {
  std::vector<std::byte> copy;
  request(
      bytes,
      [&](std::span<const std::byte> response) { copy.assign(response.begin(), response.end()); },
      options);
  return copy;
}

void Caller::request(std::span<const std::byte> bytes, const InPlace &in_place,
                     const RequestOptions &options) {
  const auto deadline = rdmacommon::deadline_in(options.limit);
  AreaUse::Allocation place;
  const Outcome outcome = area_->request(bytes, options, Want::response, deadline, place);
  if (outcome != Outcome::response)
    area_->fail(outcome, bytes, options);
  area_->pending(place, options, deadline).wait_until(deadline, in_place);
}

Pending Caller::request_async(std::span<const std::byte> bytes, const RequestOptions &options) {
  AreaUse::Allocation place;
  const Outcome outcome = area_->try_request(bytes, options, Want::response, place);
  if (outcome != Outcome::response)
    area_->fail(outcome, bytes, options);
  return area_->pending(place, options, rdmacommon::deadline_in(options.limit));
}

std::optional<Pending> Caller::try_request_async(std::span<const std::byte> bytes,
                                                 const RequestOptions &options) {
  AreaUse::Allocation place;
  const Outcome outcome = area_->try_request(bytes, options, Want::response, place);
  if (outcome == Outcome::no_room)
    return std::nullopt;
  if (outcome != Outcome::response)
    area_->fail(outcome, bytes, options);
  return area_->pending(place, options, rdmacommon::deadline_in(options.limit));
}

std::vector<Pending> Caller::request_batch(std::span<const std::span<const std::byte>> requests,
                                           const RequestOptions &options) {
  area_->check(options);
  if (area_->is_known_to_be_over())
    area_->fail(Outcome::sender_gone, {}, options);
  for (const auto bytes : requests)
    if (CallerArea::needed(bytes.size(), options) > area_->longest())
      area_->fail(Outcome::too_long, bytes, options);
  const auto deadline = rdmacommon::deadline_in(options.limit);
  std::vector<Pending> sent;
  sent.reserve(requests.size());
  const std::lock_guard lock(area_->mutex_);
  for (const auto bytes : requests) {
    AreaUse::Allocation place;
    if (area_->add(bytes, options, Want::response, place) != Outcome::response)
      break;
    sent.push_back(area_->pending(place, options, deadline));
  }
  area_->announce();
  return sent;
}

// Nobody waits for what becomes of it, so its slots are free once the sender has sent it.
void Caller::post(std::span<const std::byte> bytes, const RequestOptions &options) {
  AreaUse::Allocation place;
  const Outcome outcome =
      area_->request(bytes, options, Want::nothing, rdmacommon::deadline_in(options.limit), place);
  if (outcome != Outcome::response)
    area_->fail(outcome, bytes, options);
}

std::optional<size_t> Caller::wait_any(std::span<const Pending> requests, milliseconds limit,
                                       std::optional<Waiting> waiting, Where where) {
  const auto first = [&](auto is_it) -> std::optional<size_t> {
    const auto found = std::ranges::find_if(requests, is_it);
    return found == requests.end() ? std::nullopt
                                   : std::optional(static_cast<size_t>(found - requests.begin()));
  };
  auto deadline = rdmacommon::deadline_in(limit);
  const bool is_any_left =
      first([](const Pending &each) { return each.area_ != nullptr; }).has_value();
  if (!is_any_left)
    throw Error("the requests", "all of them have been collected", where);
  for (const Pending &each : requests)
    if (each.area_ != nullptr)
      deadline = std::min(deadline, each.deadline_);
  std::optional<size_t> found;
  area_->sleep_until(
      [&] {
        return (found = first([](const Pending &each) { return each.is_answered(); })).has_value();
      },
      deadline, waiting.value_or(area_->waiting_));
  return found ? found : first([](const Pending &each) { return each.is_ready(); });
}

bool Caller::wait_connected(milliseconds limit, std::optional<uint32_t> server, Where where) {
  const Board &its = area_->board();
  if (server && *server >= its.servers)
    throw Error("the server", "there is no server " + std::to_string(*server), where);
  const auto connections = std::span(its.connections).first(its.servers);
  const auto is_up = [&] {
    return server ? connections[*server].load() > 0
                  : std::ranges::any_of(connections, [](const auto &each) { return each > 0; });
  };
  for (const auto deadline = rdmacommon::deadline_in(limit);;) {
    const uint32_t seen = its.changes.load(std::memory_order_acquire);
    if (area_->is_over()) // the board stays as it was
      throw RequestFailed(Outcome::sender_gone, "", where);
    if (is_up())
      return true;
    const auto now = Clock::now();
    if (now >= deadline)
      return false;
    sleep_on(its.changes, seen, ~uint32_t{0}, std::min(deadline, now + liveness_interval));
  }
}

// ---- for an event loop

// The answer may come at once. The lock keeps another thread's run_ready() from looking for it
// before its callback is there.
void Caller::request_then(std::span<const std::byte> bytes, Then then,
                          const RequestOptions &options) {
  const std::lock_guard lock(area_->callbacks_mutex_);
  Pending pending = request_async(bytes, options);
  const auto deadline = pending.deadline_;
  area_->callbacks_.push_back({std::move(pending), std::move(then)});
  if (deadline < area_->timer_at_)
    area_->set_timer(deadline);
}

// Readable when the sender has rung, at the first deadline, or when the sender has ended.
int Caller::fd() {
  const std::lock_guard lock(area_->callbacks_mutex_);
  if (area_->epoll_.get() < 0) {
    area_->epoll_ = File(check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
    area_->timer_ = File(
        check_errno(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create"));
    for (const int fd : {area_->timer_.get(), area_->joined_.event.get(),
                         area_->joined_.sender.get(), area_->joined_.link.fd()}) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      check_errno(epoll_ctl(area_->epoll_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    }
    area_->set_timer(Clock::time_point::min()); // something may be ready already
  }
  return area_->epoll_.get();
}

size_t Caller::run_ready(milliseconds limit) {
  auto ready = area_->take_ready();
  if (ready.empty() && limit > milliseconds(0)) {
    auto until = rdmacommon::deadline_in(limit);
    {
      const std::lock_guard lock(area_->callbacks_mutex_);
      until = std::min(until, area_->timer_at_);
    }
    area_->sleep_until([this] { return area_->is_any_ready(); }, until, area_->waiting_);
    ready = area_->take_ready();
  }
  size_t count = 0;
  while (!ready.empty()) {
    std::list<CallerArea::Callback> one;
    one.splice(one.end(), ready, ready.begin());
    ++count;
    try {
      one.front().then(one.front().pending);
    } catch (...) {
      area_->put_back(ready);
      throw;
    }
  }
  return count;
}

} // namespace rdmashared

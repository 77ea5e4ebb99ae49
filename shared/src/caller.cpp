// SPDX-License-Identifier: MIT
// Layer: API. The worker's end: the requests of a process, which lie in its own area, and what
// becomes of them. The threads of the process share the area under a lock; no other process has it.
#include "rdmashared/caller.hpp"

#include "bells.hpp"
#include "epoll_loop.hpp"
#include "members.hpp"
#include "memory.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

namespace rdmashared {

using rdmacommon::check_errno, rdmacommon::Error, rdmacommon::File, rdmacommon::Link,
    rdmacommon::Where;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds liveness_interval(100); // how often a sleeper asks whether the sender lives
const uint32_t cpus = std::max(std::thread::hardware_concurrency(), 1U);

int64_t nanoseconds_of(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

[[noreturn]] void sender_is_gone(Where where) {
  throw Error("the sender", "it is gone", where);
}

} // namespace

// ---- the area

// [caller-area]
// What is behind a Caller, and behind its Pendings.
class CallerArea {
public:
  CallerArea(Link link, Waiting waiting);

private:
  friend class Caller;
  friend class Pending;

  const Area &area() const { return use_.area(); }
  const Board &board() const { return **joined_.board; }
  bool is_over() const { return board().is_over.load() != 0 || joined_.is_alone(); }

  uint32_t slots_for_request(size_t bytes, const RequestOptions &options) const;
  using Place = AreaUse::Place;
  std::optional<Place> try_request(std::span<const std::byte> bytes, const RequestOptions &options,
                                   Want want);
  Place request(std::span<const std::byte> bytes, const RequestOptions &options, Want want);
  Pending pending(const Place &place, const RequestOptions &options) {
    return {*this,        place.slot, place.slots, place.room, options.waiting.value_or(waiting_),
            options.where};
  }
  void submit(const Submission &what);
  void free(const Place &place);
  template <typename IsDone>
  bool sleep_until(IsDone is_done, milliseconds limit, Waiting how, Where where);
  void set_timer(Clock::time_point when);

  const pid_t process_ = getpid();
  const Waiting waiting_;
  std::array<Patience, 3> patience_{Patience(Waiting::poll), Patience(Waiting::events),
                                    Patience(Waiting::adaptive)}; // by Waiting
  Joined joined_;

  std::mutex mutex_; // of the two below, apart from AreaUse::release()
  AreaUse use_;
  uint32_t submitted_ = 0;

  struct Callback {
    Pending pending;
    Then then;
    Clock::time_point deadline;
  };
  std::mutex callbacks_mutex_;
  std::list<Callback> callbacks_;
  Clock::time_point timer_at_ = Clock::time_point::max();
  File epoll_, timer_; // made by the first fd()
};
// [caller-area]

CallerArea::CallerArea(Link link, Waiting waiting)
    : waiting_(waiting), joined_(join(std::move(link), std::chrono::seconds(5))),
      use_(*joined_.area) {}

// [slots-for-request]
uint32_t CallerArea::slots_for_request(size_t bytes, const RequestOptions &options) const {
  const size_t room = options.room == RequestOptions::any_length ? 0 : options.room;
  const uint64_t needed = std::max<uint64_t>({bytes, room, 1});
  const AreaShape &shape = area().shape();
  const uint64_t most = std::min(uint64_t{shape.slots} * shape.slot_size, uint64_t{shape.longest});
  if (needed > most)
    throw Error("the request",
                std::to_string(needed) + " bytes are more than the slots have room for, " +
                    std::to_string(most),
                options.where);
  if (options.room == RequestOptions::any_length && shape.rooms == 0)
    throw Error("the request", "responses of any length need SenderOptions::largest_response",
                options.where);
  if (options.server && *options.server >= board().servers)
    throw Error("the server", "there is no server " + std::to_string(*options.server),
                options.where);
  return needed <= shape.slot_size
             ? 1
             : static_cast<uint32_t>((needed + shape.slot_size - 1) / shape.slot_size);
}
// [slots-for-request]

void CallerArea::submit(const Submission &what) {
  std::memcpy(&area().submission(submitted_), &what, sizeof what);
  publish(area().submitted(), ++submitted_, board().is_asleep, [this] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(joined_.doorbell.get(), &one, sizeof one);
  });
}

// [try-request]
std::optional<AreaUse::Place> CallerArea::try_request(std::span<const std::byte> bytes,
                                                      const RequestOptions &options, Want want) {
  const uint32_t slots = slots_for_request(bytes.size(), options);
  const bool is_long = options.room == RequestOptions::any_length && want == Want::response;
  const std::lock_guard lock(mutex_);
  const auto taken = use_.take(slots, is_long);
  if (!taken)
    return std::nullopt;
  area().answer(taken->slot).outcome.store(0, std::memory_order_relaxed);
  if (!bytes.empty())
    std::memcpy(area().slots(taken->slot).data(), bytes.data(), bytes.size());
  submit(
      {.slot = taken->slot,
       .length = static_cast<uint32_t>(bytes.size()),
       .response_room = std::min(slots * area().shape().slot_size, area().shape().longest),
       .server = options.server.value_or(any_server),
       .limit_ms = static_cast<uint32_t>(std::clamp<int64_t>(options.limit.count(), 1, UINT32_MAX)),
       .room = taken->room,
       .want = is_long ? Want::long_response : want,
       .service = options.service,
       .unused = 0});
  return taken;
}

AreaUse::Place CallerArea::request(std::span<const std::byte> bytes, const RequestOptions &options,
                                   Want want) {
  auto place = try_request(bytes, options, want);
  if (place)
    return *place;
  const auto deadline = rdmacommon::deadline_in(options.limit);
  rdmashared::sleep_until(
      area().room_bell(), area().wants_room(),
      [&] {
        place = try_request(bytes, options, want);
        return place.has_value();
      },
      [&](uint32_t seen) {
        if (is_over())
          sender_is_gone(options.where);
        const auto now = Clock::now();
        if (now >= deadline)
          throw Error("the request", "there is no room for it in the area of this process",
                      options.where);
        sleep_on(area().room_bell(), seen, ~uint32_t{0},
                 std::min(deadline, now + liveness_interval));
        return true;
      });
  return *place;
}
// [try-request]

void CallerArea::free(const Place &place) {
  use_.release(place);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (must_wake(area().wants_room()))
    ring(area().room_bell(), ~uint32_t{0});
}

// [sleep-until]
// @return false if the limit has passed
template <typename IsDone>
bool CallerArea::sleep_until(IsDone is_done, milliseconds limit, Waiting how, Where where) {
  if (is_done())
    return true;
  if (limit <= milliseconds(0))
    return false;
  const auto deadline = rdmacommon::deadline_in(limit);
  Patience &patience = patience_.at(static_cast<size_t>(how));
  int looked = 0;
  // [look]
  // Looking pays for one process, and not for many: they would keep the CPUs from the sender.
  const int looks = how == Waiting::adaptive && board().busy.load(std::memory_order_relaxed) >= cpus
                        ? 0
                        : patience.looks();
  // [look]
  for (; looked < looks && !is_done(); ++looked) {
    sched_yield();
    if (looked % 1024 == 1023 && (Clock::now() >= deadline || is_over()))
      break;
  }
  patience.note(looked, is_done());
  const uint32_t bit = uint32_t{1} << joined_.number % 32;
  const auto &bell = board().bells.at(joined_.number / 32);
  auto next_look = Clock::time_point::max(); // whether the sender lives
  return rdmashared::sleep_until(bell, area().sleeps(), is_done, [&](uint32_t seen) {
    const auto now = Clock::now();
    if (board().is_over.load() != 0 || (now >= next_look && joined_.is_alone())) {
      if (is_done())
        return true;
      sender_is_gone(where);
    }
    if (now >= deadline)
      return false;
    if (now >= next_look || next_look == Clock::time_point::max())
      next_look = now + liveness_interval;
    sleep_on(bell, seen, bit, std::min(deadline, next_look));
    return true;
  });
}
// [sleep-until]

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
  }
  return "its outcome is unknown";
}

RequestFailed::RequestFailed(Outcome outcome, const std::string &server_said, Where where)
    : Error("the request", words_for(outcome) + (server_said.empty() ? "" : ": " + server_said),
            where),
      outcome_(outcome), server_said_(server_said) {}

// [drop]
// The slots are free once the answer has come. Until then the server is told that nobody waits.
void Pending::drop() {
  if (getpid() != area_->process_) // a forked child has no area
    return;
  const AreaUse::Place place{.slot = slot_, .slots = slots_, .room = room_};
  if (is_ready()) {
    area_->free(place);
    return;
  }
  const std::lock_guard lock(area_->mutex_);
  area_->use_.give_up(place);
  area_->submit({.slot = slot_,
                 .length = 0,
                 .response_room = 0,
                 .server = any_server,
                 .limit_ms = 0,
                 .room = room_,
                 .want = Want::cancel,
                 .service = 0,
                 .unused = 0});
}
// [drop]

bool Pending::is_ready() const {
  return area_ && area_->area().answer(slot_).outcome.load(std::memory_order_acquire) != 0;
}

// [caller-wait]
bool Pending::wait(milliseconds limit, const InPlace &in_place) {
  if (!area_)
    throw Error("the response", "it has been collected already", where_);
  if (!area_->sleep_until([this] { return is_ready(); }, limit, how_, where_))
    return false;
  struct Free {
    Pending &pending;
    ~Free() {
      std::exchange(pending.area_, nullptr)
          ->free({.slot = pending.slot_, .slots = pending.slots_, .room = pending.room_});
    }
  } const when_used{*this};
  const Area &area = area_->area();
  const Answer &answer = area.answer(slot_);
  const auto outcome = static_cast<Outcome>(answer.outcome.load(std::memory_order_acquire) - 1);
  const size_t length = answer.length;
  const auto slots = area.slots(slot_);
  if (outcome == Outcome::response) {
    in_place(room_ != AreaUse::no_room ? area.room(room_).first(length) : slots.first(length));
    return true;
  }
  const auto said = outcome == Outcome::refused ? slots.first(length) : slots.first(0);
  throw RequestFailed(outcome, {reinterpret_cast<const char *>(said.data()), said.size()}, where_);
}
// [caller-wait]

std::optional<std::vector<std::byte>> Pending::wait(milliseconds limit) {
  std::vector<std::byte> copy;
  if (!wait(limit,
            [&](std::span<const std::byte> bytes) { copy.assign(bytes.begin(), bytes.end()); }))
    return std::nullopt;
  return copy;
}

// ---- all requests of a process

Caller::Caller(Link link, Waiting waiting)
    : area_(std::make_unique<CallerArea>(std::move(link), waiting)) {}

Caller::Caller(Caller &&) noexcept = default;

Caller::~Caller() = default;

Caller Caller::join(const std::string &name, Waiting waiting, Where where) {
  return Caller(connect_to(name, std::chrono::seconds(5), where), waiting);
}

uint32_t Caller::largest_response() const {
  return area_->area().shape().largest;
}

// [request]
Pending Caller::request_async(std::span<const std::byte> bytes, const RequestOptions &options) {
  return area_->pending(area_->request(bytes, options, Want::response), options);
}

std::optional<Pending> Caller::try_request_async(std::span<const std::byte> bytes,
                                                 const RequestOptions &options) {
  const auto place = area_->try_request(bytes, options, Want::response);
  return place ? std::optional(area_->pending(*place, options)) : std::nullopt;
}

void Caller::request(std::span<const std::byte> bytes, const InPlace &in_place,
                     const RequestOptions &options) {
  if (!request_async(bytes, options).wait(options.limit, in_place))
    throw Error("the request", "no answer within " + std::to_string(options.limit.count()) + " ms",
                options.where);
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

// Nobody waits for what becomes of it, so its slots are free once the sender has sent it.
void Caller::post(std::span<const std::byte> bytes, const RequestOptions &options) {
  const auto place = area_->request(bytes, options, Want::nothing);
  const std::lock_guard lock(area_->mutex_);
  area_->use_.give_up(place);
}
// [request]

std::optional<size_t> Caller::wait_any(std::span<const Pending> requests, milliseconds limit,
                                       std::optional<Waiting> waiting, Where where) {
  size_t found = requests.size();
  const auto is_done = [&] {
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i].is_ready()) {
        found = i;
        return true;
      }
    return false;
  };
  if (std::ranges::all_of(requests, [](const Pending &each) { return each.area_ == nullptr; }))
    throw Error("the requests", "all of them have been collected", where);
  if (!area_->sleep_until(is_done, limit, waiting.value_or(area_->waiting_), where))
    return std::nullopt;
  return found;
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
    if (is_up())
      return true;
    if (area_->is_over())
      sender_is_gone(where);
    const auto now = Clock::now();
    if (now >= deadline)
      return false;
    sleep_on(its.changes, seen, ~uint32_t{0}, std::min(deadline, now + liveness_interval));
  }
}

// ---- for an event loop

void CallerArea::set_timer(Clock::time_point when) {
  timer_at_ = when;
  if (timer_.get() < 0)
    return;
  const int64_t at =
      when == Clock::time_point::max() ? 0 : std::max<int64_t>(nanoseconds_of(when), 1);
  const itimerspec set{.it_interval = {},
                       .it_value = {.tv_sec = at / 1'000'000'000, .tv_nsec = at % 1'000'000'000}};
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &set, nullptr);
}

// [request-then]
void Caller::request_then(std::span<const std::byte> bytes, Then then,
                          const RequestOptions &options) {
  auto pending = try_request_async(bytes, options);
  if (!pending)
    throw Error("the request", "there is no room for it in the area of this process",
                options.where);
  const std::lock_guard lock(area_->callbacks_mutex_);
  const auto deadline = rdmacommon::deadline_in(options.limit);
  area_->callbacks_.push_back({std::move(*pending), std::move(then), deadline});
  if (deadline < area_->timer_at_)
    area_->set_timer(deadline);
}

// Readable when the sender has rung, or at the first deadline.
int Caller::fd() {
  const std::lock_guard lock(area_->callbacks_mutex_);
  if (area_->epoll_.get() < 0) {
    area_->epoll_ = File(check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
    area_->timer_ = File(
        check_errno(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create"));
    for (const int fd :
         {area_->timer_.get(), area_->joined_.event.get(), area_->joined_.sender.get()}) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      check_errno(epoll_ctl(area_->epoll_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    }
    area_->set_timer(Clock::time_point::min()); // something may be ready already
  }
  return area_->epoll_.get();
}

size_t Caller::run_ready() {
  std::list<CallerArea::Callback> ready;
  {
    const std::lock_guard lock(area_->callbacks_mutex_);
    uint64_t count;
    if (area_->epoll_.get() >= 0) {
      [[maybe_unused]] ssize_t got = read(area_->joined_.event.get(), &count, sizeof count);
      got = read(area_->timer_.get(), &count, sizeof count);
    }
    area_->area().wants_event().store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst); // before the look
    const bool is_gone = area_->is_over();
    const auto now = Clock::now();
    auto first = Clock::time_point::max();
    for (auto next = area_->callbacks_.begin(); next != area_->callbacks_.end();)
      if (const auto it = next++; is_gone || it->pending.is_ready() || it->deadline <= now)
        ready.splice(ready.end(), area_->callbacks_, it);
      else
        first = std::min(first, it->deadline);
    area_->set_timer(first);
  }
  size_t count = 0;
  while (!ready.empty()) {
    std::list<CallerArea::Callback> one;
    one.splice(one.end(), ready, ready.begin());
    ++count;
    one.front().then(one.front().pending);
  }
  return count;
}
// [request-then]

} // namespace rdmashared

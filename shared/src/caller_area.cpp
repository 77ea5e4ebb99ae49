// SPDX-License-Identifier: MIT
#include "caller_area.hpp"

#include "bells.hpp"

#include <rdmacommon/stopwatch.hpp>

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Link, rdmacommon::Where;
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

CallerArea::CallerArea(Link link, Waiting waiting)
    : waiting_(waiting), joined_(join(std::move(link), std::chrono::seconds(5))),
      uses_(area().shape().slots), taken_(uses_.size()), is_room_used_(area().shape().rooms) {}

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
  return static_cast<uint32_t>((needed + shape.slot_size - 1) / shape.slot_size);
}
// [slots-for-request]

// [find-slots]
// So many free slots that follow each other. It goes on where the last search ended, so it finds
// some soon, unless the area is nearly full.
std::optional<uint32_t> CallerArea::find_slots(uint32_t count) {
  const auto slots = static_cast<uint32_t>(uses_.size());
  uint32_t first = next_slot_ + count <= slots ? next_slot_ : 0;
  for (uint32_t looked = 0, at = first; looked < slots + count; ++looked) {
    if (!is_free(at)) {
      first = at + 1;
      if (first + count > slots) {
        looked += slots - first;
        first = 0;
      }
      at = first;
    } else if (++at - first == count) {
      next_slot_ = at == slots ? 0 : at;
      return first;
    }
  }
  return std::nullopt;
}

// A request that nobody waits for has given its slots back once it is answered.
bool CallerArea::is_free(uint32_t slot) {
  if (uses_[slot] == Use::unwanted && taken_[slot].slots > 0 &&
      area().answer(slot).outcome.load(std::memory_order_acquire) != 0)
    release(slot);
  return uses_[slot] == Use::free;
}

void CallerArea::release(uint32_t slot) {
  const Taken taken = std::exchange(taken_[slot], {});
  std::fill_n(uses_.begin() + slot, taken.slots, Use::free);
  if (taken.room != no_room)
    is_room_used_[taken.room] = false;
}

std::optional<uint32_t> CallerArea::find_room() {
  auto room = std::ranges::find(is_room_used_, false);
  if (room == is_room_used_.end()) { // unless a request that nobody waits for has one
    for (uint32_t slot = 0; slot < uses_.size(); ++slot)
      is_free(slot);
    room = std::ranges::find(is_room_used_, false);
  }
  if (room == is_room_used_.end())
    return std::nullopt;
  return static_cast<uint32_t>(room - is_room_used_.begin());
}
// [find-slots]

void CallerArea::submit(const Submission &what) {
  std::memcpy(&area().submission(submitted_), &what, sizeof what);
  publish(area().submitted(), ++submitted_, board().is_asleep, [this] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(joined_.doorbell.get(), &one, sizeof one);
  });
}

// [try-request]
std::optional<Pending> CallerArea::try_request(std::span<const std::byte> bytes,
                                               const RequestOptions &options, Want want) {
  const uint32_t slots = slots_for_request(bytes.size(), options);
  const bool is_long = options.room == RequestOptions::any_length && want == Want::response;
  const std::lock_guard lock(mutex_);
  std::optional<uint32_t> room = no_room;
  if (is_long && !(room = find_room()))
    return std::nullopt;
  const auto first = find_slots(slots);
  if (!first)
    return std::nullopt;
  std::fill_n(uses_.begin() + *first, slots, Use::used);
  taken_[*first] = {.slots = slots, .room = *room};
  if (is_long)
    is_room_used_[*room] = true;
  area().answer(*first).outcome.store(0, std::memory_order_relaxed);
  if (!bytes.empty())
    std::memcpy(area().slots(*first).data(), bytes.data(), bytes.size());
  submit({.slot = *first,
          .length = static_cast<uint32_t>(bytes.size()),
          .response_room = std::min(slots * area().shape().slot_size, area().shape().longest),
          .server = options.server.value_or(any_server),
          .deadline = nanoseconds_of(rdmacommon::deadline_in(options.limit)),
          .room = *room,
          .want = is_long ? Want::long_response : want,
          .service = options.service,
          .unused = 0});
  return Pending(*this, *first, slots, *room, options.waiting.value_or(waiting_), options.where);
}

Pending CallerArea::request(std::span<const std::byte> bytes, const RequestOptions &options,
                            Want want) {
  const auto deadline = rdmacommon::deadline_in(options.limit);
  std::optional<Pending> pending;
  rdmashared::sleep_until(
      area().room_bell(), area().wants_room(),
      [&] {
        if (auto made = try_request(bytes, options, want))
          pending.emplace(std::move(*made));
        return pending.has_value();
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
  return std::move(*pending);
}
// [try-request]

void CallerArea::free(const Pending &pending) {
  {
    const std::lock_guard lock(mutex_);
    release(pending.slot_);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (must_wake(area().wants_room()))
    ring(area().room_bell(), ~uint32_t{0});
}

// ---- waiting

// [sleep-until]
// @return false if the limit has passed
template <typename IsDone>
bool CallerArea::sleep_until(IsDone is_done, milliseconds limit, Waiting how, Where where) {
  if (is_done() || limit <= milliseconds(0))
    return is_done();
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

// [caller-wait]
bool CallerArea::wait(Pending &pending, milliseconds limit, const InPlace &in_place) {
  if (!sleep_until([&] { return is_ready(pending); }, limit, pending.how_, pending.where_))
    return false;
  struct Free {
    CallerArea &area;
    Pending &pending;
    ~Free() {
      area.free(pending);
      pending.area_ = nullptr;
    }
  } const when_used{*this, pending};
  use_answer(pending, in_place);
  return true;
}

void CallerArea::use_answer(const Pending &pending, const InPlace &in_place) {
  const Answer &answer = area().answer(pending.slot_);
  const auto outcome = static_cast<Outcome>(answer.outcome.load(std::memory_order_acquire) - 1);
  const size_t length = answer.length;
  const auto slots = area().slots(pending.slot_);
  if (outcome == Outcome::response)
    return in_place(pending.room_ != no_room ? area().room(pending.room_).first(length)
                                             : slots.first(length));
  const auto said = outcome == Outcome::refused ? slots.first(length) : slots.first(0);
  throw RequestFailed(outcome, {reinterpret_cast<const char *>(said.data()), said.size()},
                      pending.where_);
}
// [caller-wait]

// [drop]
// The slots are free once the answer has come. Until then the server is told that nobody waits.
void CallerArea::drop(const Pending &pending) {
  if (getpid() != process_) // a forked child has no area
    return;
  if (is_ready(pending))
    return free(pending);
  const std::lock_guard lock(mutex_);
  std::fill_n(uses_.begin() + pending.slot_, pending.slots_, Use::unwanted);
  submit({.slot = pending.slot_,
          .length = 0,
          .response_room = 0,
          .server = any_server,
          .deadline = 0,
          .room = pending.room_,
          .want = Want::cancel,
          .service = 0,
          .unused = 0});
}

void CallerArea::forget(Pending pending) {
  pending.area_ = nullptr;
  const std::lock_guard lock(mutex_);
  std::fill_n(uses_.begin() + pending.slot_, pending.slots_, Use::unwanted);
}
// [drop]

std::optional<size_t> CallerArea::wait_any(std::span<const Pending> requests, milliseconds limit,
                                           std::optional<Waiting> waiting, Where where) {
  size_t found = requests.size();
  const auto is_done = [&] {
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i].area_ != nullptr && is_ready(requests[i])) {
        found = i;
        return true;
      }
    return false;
  };
  if (std::ranges::all_of(requests, [](const Pending &each) { return each.area_ == nullptr; }))
    throw Error("the requests", "all of them have been collected", where);
  if (!sleep_until(is_done, limit, waiting.value_or(waiting_), where))
    return std::nullopt;
  return found;
}

bool CallerArea::wait_connected(milliseconds limit, std::optional<uint32_t> server, Where where) {
  const Board &its = board();
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
    if (is_over())
      sender_is_gone(where);
    const auto now = Clock::now();
    if (now >= deadline)
      return false;
    sleep_on(its.changes, seen, ~uint32_t{0}, std::min(deadline, now + liveness_interval));
  }
}

// ---- for an event loop

// [request-then]
void CallerArea::request_then(std::span<const std::byte> bytes, Then then,
                              const RequestOptions &options) {
  auto pending = try_request(bytes, options, Want::response);
  if (!pending)
    throw Error("the request", "there is no room for it in the area of this process",
                options.where);
  const std::lock_guard lock(callbacks_mutex_);
  const auto deadline = rdmacommon::deadline_in(options.limit);
  callbacks_.push_back({std::move(*pending), std::move(then), deadline});
  if (deadline < timer_at_)
    set_timer(deadline);
}

// Readable when the sender has rung, or at the first deadline.
int CallerArea::fd() {
  const std::lock_guard lock(callbacks_mutex_);
  if (epoll_.get() < 0) {
    using rdmacommon::check_errno, rdmacommon::File;
    epoll_ = File(check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
    timer_ = File(
        check_errno(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create"));
    for (const int fd : {timer_.get(), joined_.event.get(), joined_.sender.get()}) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      check_errno(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    }
    set_timer(Clock::time_point::min()); // something may be ready already
  }
  return epoll_.get();
}

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

size_t CallerArea::run_ready() {
  std::list<Callback> ready;
  {
    const std::lock_guard lock(callbacks_mutex_);
    uint64_t count;
    if (epoll_.get() >= 0) {
      [[maybe_unused]] ssize_t got = read(joined_.event.get(), &count, sizeof count);
      got = read(timer_.get(), &count, sizeof count);
    }
    area().wants_event().store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst); // before the look
    const bool is_gone = is_over();
    const auto now = Clock::now();
    auto first = Clock::time_point::max();
    for (auto next = callbacks_.begin(); next != callbacks_.end();)
      if (const auto it = next++; is_gone || is_ready(it->pending) || it->deadline <= now)
        ready.splice(ready.end(), callbacks_, it);
      else
        first = std::min(first, it->deadline);
    set_timer(first);
  }
  size_t count = 0;
  while (!ready.empty()) {
    std::list<Callback> one;
    one.splice(one.end(), ready, ready.begin());
    ++count;
    one.front().then(one.front().pending);
  }
  return count;
}
// [request-then]

} // namespace rdmashared

// SPDX-License-Identifier: MIT
#include "caller_area.hpp"

#include <rdmacommon/check.hpp>

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Link;

CallerArea::CallerArea(Link link, Waiting waiting, std::chrono::milliseconds limit)
    : waiting_(waiting), joined_(join(std::move(link), limit)),
      longest_(joined_.area->shape().longest_from(0)), use_(*joined_.area) {}

uint64_t CallerArea::needed(size_t bytes, const RequestOptions &options) {
  return std::max<uint64_t>(
      {bytes, options.max_response == RequestOptions::any_length ? 0 : options.max_response, 1});
}

void CallerArea::check_closely(const RequestOptions &options) const {
  if (options.max_response == RequestOptions::any_length && area().shape().long_responses == 0)
    throw Error("the request", "responses of any length need SenderOptions::largest_response",
                options.where);
  if (options.server && *options.server >= board().servers)
    throw Error("the server", "there is no server " + std::to_string(*options.server),
                options.where);
}

Outcome CallerArea::add(std::span<const std::byte> bytes, const RequestOptions &options, Want want,
                        Allocation &place) {
  const uint64_t needed = this->needed(bytes.size(), options);
  if (needed > longest())
    return Outcome::too_long;
  const uint32_t slot_size = area().shape().slot_size;
  const uint32_t slots =
      needed <= slot_size ? 1 : static_cast<uint32_t>((needed + slot_size - 1) / slot_size);
  const bool is_long = options.max_response == RequestOptions::any_length && want == Want::response;
  const auto taken = use_.take(slots, is_long);
  if (!taken)
    return Outcome::no_room;
  place = *taken;
  area().answer(place.slot).outcome.store(0, std::memory_order_relaxed);
  if (want == Want::nothing)
    use_.give_up(place); // before the sender sends it, and wakes those who wait for its slots
  if (!bytes.empty())
    std::memcpy(area().slots(place.slot).data(), bytes.data(), bytes.size());
  area().submission(place.slot) = {
      .length = static_cast<uint32_t>(bytes.size()),
      .max_response = std::min(slots * slot_size, area().shape().longest),
      .server = options.server.value_or(any_server),
      .limit_ms = static_cast<uint32_t>(std::clamp<int64_t>(options.limit.count(), 1, UINT32_MAX)),
      .response_buffer = place.buffer,
      .want = is_long ? Want::long_response : want,
      .service = options.service};
  submit(place.slot);
  return Outcome::response;
}

void CallerArea::announce() {
  publish(area().submitted(), submitted_, board().is_asleep, [this] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(joined_.doorbell.get(), &one, sizeof one);
  });
}

Outcome CallerArea::try_request(std::span<const std::byte> bytes, const RequestOptions &options,
                                Want want, Allocation &place) {
  check(options);
  if (is_known_to_be_over())
    return Outcome::sender_gone;
  const std::lock_guard lock(mutex_);
  const Outcome outcome = add(bytes, options, want, place);
  if (outcome == Outcome::response)
    announce();
  return outcome;
}

Outcome CallerArea::request(std::span<const std::byte> bytes, const RequestOptions &options,
                            Want want, Clock::time_point deadline, Allocation &place) {
  Outcome outcome = try_request(bytes, options, want, place);
  if (outcome != Outcome::no_room)
    return outcome;
  rdmashared::sleep_until(
      area().room_bell(), area().wants_room(),
      [&] {
        outcome = try_request(bytes, options, want, place);
        return outcome != Outcome::no_room;
      },
      [&](uint32_t seen) {
        const auto now = Clock::now();
        if (is_over())
          outcome = Outcome::sender_gone;
        if (outcome == Outcome::sender_gone || now >= deadline)
          return false;
        sleep_on(area().room_bell(), seen, ~uint32_t{0},
                 std::min(deadline, now + liveness_interval));
        return true;
      });
  return outcome;
}

void CallerArea::fail(Outcome outcome, std::span<const std::byte> bytes,
                      const RequestOptions &options) const {
  std::string detail;
  if (outcome == Outcome::too_long)
    detail = std::to_string(needed(bytes.size(), options)) + " bytes, and at most " +
             std::to_string(longest());
  throw RequestFailed(outcome, detail, options.where);
}

void CallerArea::wake_those_without_room() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (must_wake(area().wants_room()))
    ring(area().room_bell(), ~uint32_t{0});
}

// ---- for an event loop

void CallerArea::set_timer(Clock::time_point when) {
  timer_at_ = when;
  if (timer_.get() < 0)
    return;
  const int64_t at =
      when == Clock::time_point::max()
          ? 0
          : std::max<int64_t>(std::chrono::nanoseconds(when.time_since_epoch()).count(), 1);
  const itimerspec set{
      .it_interval = {},
      .it_value = {.tv_sec = at / 1'000'000'000, .tv_nsec = static_cast<long>(at % 1'000'000'000)}};
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &set, nullptr);
}

std::list<CallerArea::Callback> CallerArea::take_ready() {
  const std::lock_guard lock(callbacks_mutex_);
  if (epoll_.get() >= 0) {
    std::array<std::byte, 64> rings;
    [[maybe_unused]] ssize_t got = read(joined_.event.get(), rings.data(), rings.size());
    uint64_t count;
    got = read(timer_.get(), &count, sizeof count);
    area().wants_event().store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst); // before the look
  }
  std::list<Callback> ready;
  const bool is_gone = is_over();
  if (is_gone && epoll_.get() >= 0) // they stay readable, and there is nothing to do any more
    for (const int fd : {joined_.event.get(), joined_.sender.get(), joined_.link.fd()})
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const auto now = Clock::now();
  auto first = Clock::time_point::max();
  for (auto next = callbacks_.begin(); next != callbacks_.end();) {
    const auto it = next++;
    if (is_gone || it->pending.is_answered() || it->pending.deadline_ <= now)
      ready.splice(ready.end(), callbacks_, it);
    else
      first = std::min(first, it->pending.deadline_);
  }
  set_timer(first);
  return ready;
}

void CallerArea::put_back(std::list<Callback> &ready) {
  const std::lock_guard lock(callbacks_mutex_);
  callbacks_.splice(callbacks_.begin(), ready);
  set_timer(Clock::time_point::min());
}

// Another thread may have added one whose deadline comes first.
bool CallerArea::is_any_ready() {
  const std::lock_guard lock(callbacks_mutex_);
  return timer_at_ <= Clock::now() || std::ranges::any_of(callbacks_, [](const Callback &each) {
           return each.pending.is_answered();
         });
}

} // namespace rdmashared

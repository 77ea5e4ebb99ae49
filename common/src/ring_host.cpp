// SPDX-License-Identifier: MIT
#include "rdmacommon/ring_host.hpp"
#include "rdmacommon/stopwatch.hpp"

#include "ring_peers.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

namespace rdmacommon {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// What epoll says of the rest is a guest's tag: its worker number, and a count above that.
constexpr uint64_t the_doorbell = 0, the_listener = 1, the_timer = 2, guest_tags = 1 << 16;
constexpr uint64_t busy_looks =
    64; // while there is always something ready, look around each so many times
constexpr milliseconds breather(1000); // after there were no file descriptors left

} // namespace

RingHost::RingHost(const RingShape &shape, uint32_t rings, uint32_t max_workers, uint32_t doorbells)
    : max_workers_(std::min(max_workers, SlotRing::max_workers)),
      epoll_(check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      timer_(check_errno(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                         "timerfd_create")) {
  if (rings == 0 || rings > max_rings)
    throw Error("RingHost", "rings must be 1 to 14");
  if (doorbells == 0 || doorbells > rings)
    throw Error("RingHost", "doorbells must be 1 to the number of rings");
  for (uint32_t i = 0; i < doorbells; ++i)
    doorbells_.emplace_back(check_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
  for (uint32_t i = 0; i < rings; ++i) {
    memories_.push_back(SlotRing::make(shape));
    rings_.push_back(std::make_unique<SlotRing>(memories_.back().get(), doorbell(i % doorbells)));
    if (i % doorbells == 0)
      own_.push_back(rings_.back().get());
  }
  watch(doorbell(), the_doorbell);
  watch(timer_.get(), the_timer);
}

void RingHost::watch(int fd, uint64_t what) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = what}}; // a link that is closed is readable
  check_errno(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

void RingHost::unwatch(int fd) {
  if (fd >= 0)
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void RingHost::invite(Link link, Where where) {
  if (guests_.size() >= max_workers_)
    throw Error("the ring", "no more workers can join", where);
  // Not the number that has just become free: messages of its last owner may still be in the ring.
  do
    latest_ = latest_ % max_workers_ + 1;
  while (guests_.contains(latest_));
  const uint64_t tag = ++tags_ * guest_tags + latest_;
  watch(link.fd(), tag);
  guests_[latest_] = {.link = std::move(link), .tag = tag, .process = File()};
  silent_[latest_] = steady_clock::now() + hello_limit_;
  set_timer();
}

void RingHost::listen(const std::string &name, std::optional<gid_t> group, Where where) {
  File socket = unix_socket(SOCK_NONBLOCK);
  sockaddr_un address;
  const socklen_t length = abstract_address(address, name, where);
  check_errno(bind(socket.get(), reinterpret_cast<sockaddr *>(&address), length), "bind", where);
  check_errno(::listen(socket.get(), 128), "listen", where);
  unwatch(listener_.get()); // of an earlier call
  watch(socket.get(), the_listener);
  listener_ = std::move(socket);
  group_ = group;
}

// [accept]
void RingHost::accept() {
  if (silent_.size() >= max_silent)
    return pause_listening({}); // until one of them has spoken, or is forgotten
  File socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.get() < 0) {
    // It stays in the queue, so the socket stays readable: to go on watching it would be to spin.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      pause_listening(steady_clock::now() + breather);
    return;
  }
  try {
    const bool is_admitted =
        peer_of(socket.get()).uid == geteuid() || (group_ && is_of_group(socket.get(), *group_));
    if (is_admitted && guests_.size() < max_workers_)
      invite(Link(std::move(socket)));
  } catch (const Error &) { // the others do not suffer
  }
}
// [accept]

void RingHost::pause_listening(std::optional<Time> until) {
  unwatch(listener_.get());
  is_paused_ = true;
  paused_until_ = until;
  set_timer();
}

void RingHost::resume_listening() {
  if (is_paused_)
    watch(listener_.get(), the_listener);
  is_paused_ = false;
  paused_until_.reset();
}

void RingHost::set_timer() {
  std::optional<Time> next = paused_until_;
  for (const auto &[number, until] : silent_)
    next = std::min(next.value_or(until), until);
  itimerspec when{}; // zeros: off
  if (next) {
    const auto left = std::max(nanoseconds(*next - steady_clock::now()), nanoseconds(1)).count();
    when.it_value = {.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
  }
  check_errno(timerfd_settime(timer_.get(), 0, &when, nullptr), "timerfd_settime");
}

void RingHost::handle_timer() {
  const Time now = steady_clock::now();
  std::vector<uint32_t> late;
  for (const auto &[number, until] : silent_)
    if (until <= now)
      late.push_back(number);
  for (const uint32_t number : late)
    if (guests_.at(number).link.has_spoken()) // it was in time, and we were not
      welcome(number);
    else
      forget(number);
  if (paused_until_ && *paused_until_ <= now)
    resume_listening();
  set_timer();
}

// [welcome]
// It sends a pidfd of its own: the kernel's word for "this very process", which never comes to mean
// another one, as a process id does.
void RingHost::welcome(uint32_t number) {
  Guest &guest = guests_.at(number);
  try {
    std::vector<File> files;
    if (guest.link.hear(milliseconds(0), files, 1) != ring_hello)
      throw Error("a process that wants to join", "it speaks another version");
    watch(files[0].get(), guest.tag);
    guest.process = std::move(files[0]);
    std::vector<int> gifts;
    for (const auto &files_of : {&doorbells_, &memories_})
      for (const File &file : *files_of)
        gifts.push_back(file.get());
    guest.link.tell(std::string(ring_answer) + std::to_string(number) + std::string(ring_count) +
                        std::to_string(rings()) + std::string(doorbell_count) +
                        std::to_string(doorbells_.size()),
                    gifts);
    ++joined_;
  } catch (const Error &) { // of this process; the others are served on
    return forget(number);
  }
  silent_.erase(number);
  resume_listening();
}
// [welcome]

// [farewell]
// Its process has ended, or has said goodbye after it unmapped the rings: either way nobody writes
// in its name any more. A link that is closed without that word proves nothing. A program that
// becomes a daemon closes all its descriptors, and keeps its memory.
bool RingHost::has_left(const Guest &guest) {
  pollfd process{.fd = guest.process.get(), .events = POLLIN, .revents = 0};
  if (poll(&process, 1, 0) > 0)
    return true;
  try {
    if (guest.link.hear(milliseconds(0)) == ring_goodbye)
      return true;
  } catch (const Error &) { // it is closed
  }
  unwatch(guest.link.fd());
  return false;
}

void RingHost::farewell(uint32_t number) {
  for (SlotRing *ring : own_)
    reclaimed_ += ring->reclaim(number);
  forget(number);
  ++left_;
  if (on_leave_)
    on_leave_(number);
}
// [farewell]

// Closing alone would not end the watching: a child that was forked since has the same open files
// (epoll(7)).
void RingHost::forget(uint32_t number) {
  const Guest &guest = guests_.at(number);
  unwatch(guest.link.fd());
  unwatch(guest.process.get());
  guests_.erase(number);
  silent_.erase(number);
  resume_listening(); // there is room for another, and a file descriptor
}

void RingHost::handle(uint64_t what) {
  if (what == the_doorbell)
    return; // SlotRing::disarm() reads it
  if (what == the_listener)
    return accept();
  const auto guest = guests_.find(static_cast<uint32_t>(what % guest_tags));
  if (guest == guests_.end() || guest->second.tag != what)
    return; // its other descriptor came first
  if (guest->second.process.get() < 0)
    welcome(guest->first);
  else if (has_left(guest->second))
    farewell(guest->first);
}

// [host-wait]
bool RingHost::arm() {
  can_sleep_ = std::ranges::all_of(own_, &SlotRing::arm);
  sleeps_ += can_sleep_;
  return can_sleep_;
}

bool RingHost::handle_events(milliseconds limit) {
  int count = 0;
  std::array<epoll_event, 32> events;
  if (can_sleep_ || ++looks_ % busy_looks == 0) {
    count = epoll_wait(epoll_.get(), events.data(), events.size(),
                       can_sleep_ ? static_cast<int>(limit.count()) : 0);
    if (count < 0 && errno != EINTR)
      throw_errno(errno, "epoll_wait");
  }
  can_sleep_ = true;
  for (SlotRing *ring : own_)
    ring->disarm(ring == own_.back());
  bool has_timer_rung = false;
  for (const epoll_event &event : std::span(events.data(), static_cast<size_t>(std::max(count, 0))))
    if (event.data.u64 == the_timer)
      has_timer_rung = true;
    else
      handle(event.data.u64);
  if (has_timer_rung) // last, so that who has spoken is heard
    handle_timer();
  return count > 0;
}

bool RingHost::wait(milliseconds limit) {
  const auto deadline = deadline_in(limit);
  for (;;) {
    const bool is_ready = !arm();
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    const uint32_t before = joined_ + left_;
    const bool has_happened =
        handle_events(std::clamp(left, milliseconds(0), milliseconds(3'600'000)));
    if (is_ready || joined_ + left_ != before)
      return true;
    if (!has_happened && steady_clock::now() >= deadline)
      return false;
  }
}
// [host-wait]

// [start-worker]
std::unique_ptr<Child>
start_worker(RingHost &host, milliseconds limit,
             const std::function<void(RingWorker &, const Link &parent)> &body, Where where) {
  auto [host_end, worker_end] = make_link();
  auto child = std::make_unique<Child>([&, end = &worker_end](const Link &parent) {
    RingWorker worker(std::move(*end), limit);
    body(worker, parent);
  });
  host.invite(std::move(host_end), where);
  return child;
}
// [start-worker]

} // namespace rdmacommon

#include "sender.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

namespace shared_client {

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

constexpr uint32_t busy_turns = 64; // with always something to do, look around each so many

RingShape ring_shape(const Shape &shape) {
  return {
      .slots = shape.slots, .slot_size = shape.slot_size, .appendix = Answers::bytes_for(shape)};
}

void watch(int epoll, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  check_errno(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

File make_eventfd() {
  return File(check_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"));
}

void ring(const File &event) {
  const uint64_t one = 1;
  if (write(event.get(), &one, sizeof one) < 0 && errno != EAGAIN)
    std::perror("eventfd");
}

// A thread inherits what is blocked where it is made: signals are the program's, and go to its other threads.
class NoSignals {
public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals &) = delete;
  NoSignals &operator=(const NoSignals &) = delete;

private:
  sigset_t before_{};
};

} // namespace

Sender::Sender(const SenderOptions &options, std::vector<Link> links)
    : options_(options), host_(ring_shape(options.lane.shape),
                               static_cast<uint32_t>(options.servers.size()) * options.connections),
      epoll_(check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")), changed_(make_eventfd()),
      stop_(make_eventfd()) {
  const NoSignals no_signals;
  errands_.emplace(host_.rings()); // a name server that does not answer holds up one lane
  for (uint32_t i = 0; i < host_.rings(); ++i) {
    LaneOptions lane = options.lane;
    const auto server = static_cast<uint32_t>(i % options.servers.size());
    lane.host = options.servers[server].host;
    lane.port = options.servers[server].port;
    lanes_.push_back(
        std::make_unique<Lane>(host_.ring(i), server, lane, channel_.get(), *errands_, stats_));
  }
  host_.on_leave([this](uint32_t worker) {
    for (const auto &lane : lanes_)
      lane->worker_left(worker);
  });
  for (Link &link : links)
    host_.invite(std::move(link));
  if (!options.name.empty())
    host_.listen(options.name, options.group);
  for (const int fd : {host_.fd(), channel_->fd, stop_.get(), errands_->fd()})
    watch(epoll_.get(), fd);
  thread_ = std::thread([this] { run(); });
}

Sender::~Sender() {
  ring(stop_);
  thread_.join();
}

void Sender::wait_until_up(milliseconds limit) {
  const auto deadline = Lane::Clock::now() + limit;
  while (up_.load() < connections()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Lane::Clock::now());
    if (left.count() <= 0 || !is_running()) {
      const std::string reason =
          why(); // whose hint the lane has printed already, on a line of its own
      throw Error("the connections",
                  std::to_string(up_.load()) + " of " + std::to_string(connections()) +
                      " are up; " + reason.substr(0, reason.find('\n')),
                  Where::here());
    }
    pollfd change{.fd = changed_.get(), .events = POLLIN, .revents = 0};
    uint64_t count;
    if (poll(&change, 1, static_cast<int>(left.count())) > 0 &&
        read(changed_.get(), &count, sizeof count) < 0 && errno != EAGAIN)
      throw_errno(errno, "eventfd");
  }
}

std::string Sender::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

Caller Sender::caller(Waiting waiting) {
  std::vector<CallerLane> lanes;
  for (uint32_t i = 0; i < host_.rings(); ++i)
    lanes.push_back({.ring = &host_.ring(i),
                     .answers = Answers(host_.ring(i)),
                     .worker = SlotRing::own_worker,
                     .is_over = [this] { return !is_running(); }});
  return {std::move(lanes), waiting};
}

// [run]
void Sender::run() {
  Patience patience(options_.waiting);
  try {
    for (uint32_t turns = 0; is_running();) {
      bool was_busy = false;
      for (const auto &lane : lanes_)
        was_busy |= lane->turn();
      if (!patience.is_at_its_end(was_busy)) {
        if (++turns % busy_turns == 0)
          look_around(false);
      } else if (arm())
        look_around(true);
    }
  } catch (const std::exception &error) {
    std::fprintf(stderr, "the sender: %s\n", error.what());
  }
  is_running_.store(false, std::memory_order_release);
  for (const auto &lane : lanes_) // an errand may take long to end; nobody shall send meanwhile
    lane->say_down();
  errands_.reset();
  lanes_.clear(); // with an error for everybody who waits
}
// [run]

// [look-around]
bool Sender::arm() {
  return std::ranges::all_of(lanes_, [](const auto &lane) { return lane->arm(); });
}

void Sender::look_around(bool may_sleep) {
  auto deadline = Lane::Clock::time_point::max();
  for (const auto &lane : lanes_) {
    deadline = std::min(deadline, lane->deadline());
    if (const int fd = lane->new_fd(); fd >= 0)
      watch(epoll_.get(), fd);
  }
  const auto left = std::chrono::ceil<milliseconds>(deadline - Lane::Clock::now()).count();
  std::array<epoll_event, 32> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                 may_sleep ? static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)) : 0);
  if (count < 0 && errno != EINTR)
    throw_errno(errno, "epoll_wait");
  stats_.sleeps += may_sleep;
  stats_.other_calls += !may_sleep;
  for (const auto &lane : lanes_)
    lane->disarm();
  for (const epoll_event &event : std::span(events.data(), static_cast<size_t>(std::max(count, 0))))
    look_at(event.data.fd);
  uint32_t up = 0;
  for (const auto &lane : lanes_) {
    lane->look_at_the_clock();
    up += lane->is_up();
    if (!lane->is_up()) {
      const std::lock_guard lock(mutex_);
      why_ = lane->why();
    }
  }
  if (up_.exchange(up) != up)
    ring(changed_);
}

void Sender::look_at(int fd) {
  if (fd == stop_.get())
    is_running_.store(false, std::memory_order_release);
  else if (fd == host_.fd()) {
    // Nearly always it is the doorbell. If it is not, somebody joins or leaves.
    uint64_t rings;
    stats_.other_calls += 1;
    if (read(host_.doorbell(), &rings, sizeof rings) < 0)
      host_.handle_events();
  } else if (fd == errands_->fd())
    errands_->take_back();
  else if (fd == channel_->fd)
    while (const unique_cm_event event = take_cm_event(channel_.get())) {
      if (event->id->context)
        static_cast<Lane *>(event->id->context)->on_cm_event(*event);
    }
  else {
    bool is_known = false;
    for (const auto &lane : lanes_)
      if (lane->fd() == fd) {
        lane->on_completion_event();
        is_known = true;
      }
    if (!is_known) // of a connection that is being taken down; fails if it has gone
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
}
// [look-around]

} // namespace shared_client

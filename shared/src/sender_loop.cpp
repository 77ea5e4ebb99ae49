#include "sender_loop.hpp"

#include "caller_lanes.hpp"
#include "waiting.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

Shape shape_of(const SenderOptions &options) {
  const Shape shape{.slots = options.slots,
                    .slot_size = options.slot_size,
                    .window = std::min(options.window, options.slots),
                    .largest = options.largest_response};
  if (!is_possible(shape) || options.group == 0 || options.group > SlotRing::longest_run ||
      options.servers.empty() || options.connections == 0 ||
      options.connections > RingHost::most_rings / options.servers.size())
    throw Error(
        "the sender's options",
        "slots are a power of two, to 2^24, of a multiple of 64 bytes, to 1 MiB, and 2 GiB in "
        "all; a response has "
        "64 MiB at most; a group has 1 to 255 slots; there are 1 to 14 connections to all servers; "
        "the window is not 0",
        Where::here());
  return shape;
}

RingShape ring_shape(const Shape &shape) {
  return {
      .slots = shape.slots, .slot_size = shape.slot_size, .appendix = Answers::bytes_for(shape)};
}

} // namespace

SenderLoop::SenderLoop(const SenderOptions &options, std::vector<Link> links)
    : options_(options),
      host_(ring_shape(shape_of(options)),
            static_cast<uint32_t>(options.servers.size()) * options.connections) {
  const NoSignals no_signals;
  const Shape shape = shape_of(options);
  errands_.emplace(host_.rings()); // a name server that does not answer holds up one lane
  for (uint32_t i = 0; i < host_.rings(); ++i) {
    const auto server = static_cast<uint32_t>(i % options.servers.size());
    lanes_.push_back(std::make_unique<Lane>(host_.ring(i), server, options_, shape, channel_.get(),
                                            *errands_, stats_));
  }
  host_.on_leave([this](uint32_t worker) {
    for (const auto &lane : lanes_)
      lane->worker_left(worker);
  });
  for (Link &link : links)
    host_.invite(std::move(link));
  if (!options.name.empty())
    host_.listen(options.name, options.members);
  for (const int fd : {host_.fd(), channel_->fd, stop_.fd(), errands_->fd()})
    poller_.watch(fd, {.fd = fd});
  thread_ = std::thread([this] { run(); });
}

SenderLoop::~SenderLoop() {
  stop_.ring();
  thread_.join();
}

void SenderLoop::wait_until_up(milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return up_ == connections() || !is_running(); });
  if (up_ == connections())
    return;
  // The log has the hint, on a line of its own.
  const size_t most = options_.log ? why_.find('\n') : why_.npos;
  throw Error("the connections",
              std::to_string(up_) + " of " + std::to_string(connections()) + " are up; " +
                  why_.substr(0, most),
              Where::here());
}

std::string SenderLoop::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

std::unique_ptr<CallerLanes> SenderLoop::caller(Waiting waiting) {
  std::vector<CallerLane> lanes;
  for (uint32_t i = 0; i < host_.rings(); ++i)
    lanes.push_back({.ring = &host_.ring(i),
                     .answers = Answers(host_.ring(i)),
                     .worker = SlotRing::own_worker,
                     .is_over = [this] { return !is_running(); }});
  return std::make_unique<CallerLanes>(std::move(lanes), waiting);
}

// [run]
void SenderLoop::run() {
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
    if (options_.log)
      options_.log(std::string("the sender: ") + error.what());
    const std::lock_guard lock(mutex_);
    why_ = error.what();
  }
  {
    const std::lock_guard lock(mutex_);
    is_running_.store(false, std::memory_order_release);
    up_ = 0;
  }
  changed_.notify_all();
  for (const auto &lane : lanes_) // an errand may take long to end; no caller may send meanwhile
    lane->say_down();
  errands_.reset();
  lanes_.clear(); // with an error for all callers that wait
}
// [run]

// [look-around]
bool SenderLoop::arm() {
  return std::ranges::all_of(lanes_, [](const auto &lane) { return lane->arm(); });
}

void SenderLoop::look_around(bool may_sleep) {
  auto deadline = Lane::Clock::time_point::max();
  for (const auto &lane : lanes_) {
    deadline = std::min(deadline, lane->deadline());
    if (const int fd = lane->new_fd(); fd >= 0)
      poller_.watch(fd, {.fd = fd});
  }
  const auto events = poller_.wait(deadline, may_sleep);
  stats_.sleeps += may_sleep;
  stats_.other_calls += !may_sleep;
  for (const auto &lane : lanes_)
    lane->disarm();
  for (const epoll_event &event : events)
    look_at(event.data.fd);
  for (const auto &lane : lanes_)
    lane->look_at_the_clock();
  note_what_is_up();
}

void SenderLoop::note_what_is_up() {
  const auto up = static_cast<uint32_t>(
      std::ranges::count_if(lanes_, [](const auto &lane) { return lane->is_up(); }));
  const std::lock_guard lock(mutex_);
  for (const auto &lane : lanes_)
    if (!lane->is_up())
      why_ = lane->why();
  if (std::exchange(up_, up) != up)
    changed_.notify_all();
}

void SenderLoop::look_at(int fd) {
  if (fd == stop_.fd())
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
    if (!is_known) // of a connection that is being taken down
      poller_.forget(fd);
  }
}
// [look-around]

} // namespace rdmashared

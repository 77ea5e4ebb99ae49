// SPDX-License-Identifier: MIT
#include "lane_loop.hpp"

#include "waiting.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

LaneLoop::LaneLoop(uint32_t number, const SenderOptions &options, const Shape &shape,
                   RingHost &host, SenderState &state)
    : options_(options), host_(host), state_(state), is_first_(number == 0),
      doorbell_(host.doorbell(number)), bell_fd_(is_first_ ? host.fd() : doorbell_) {
  for (uint32_t i = number; i < host_.rings(); i += options.threads)
    rings_.push_back(&host_.ring(i));
  // A name server that does not answer holds up one lane.
  errands_.emplace(static_cast<uint32_t>(rings_.size()));
  for (uint32_t i = number; i < host_.rings(); i += options.threads) {
    const auto server = static_cast<uint32_t>(i % options.servers.size());
    lanes_.push_back(std::make_unique<Lane>(host_.ring(i), server, options_, shape, channel_.get(),
                                            *errands_, stats_));
  }
  for (const int fd : {bell_fd_, channel_->fd, orders_.fd(), errands_->fd()})
    poller_.watch(fd, {.fd = fd});
}

// [run]
void LaneLoop::run() {
  Patience patience(options_.waiting);
  for (uint32_t turns = 0; !is_stopped_;) {
    bool was_busy = false;
    for (const auto &lane : lanes_)
      was_busy |= lane->turn();
    if (!patience.has_ended(was_busy)) {
      if (++turns % busy_turns == 0)
        take_events(false);
    } else if (arm())
      take_events(true);
  }
}
// [run]

void LaneLoop::end() {
  for (const auto &lane : lanes_) // an errand may take long to end; no caller may send meanwhile
    lane->say_down();
  orders_.close();
  errands_.reset();
  lanes_.clear(); // with an error for all callers that wait
}

void LaneLoop::stop() {
  orders_.send([this] { is_stopped_ = true; });
}

// [worker-left-there]
std::future<void> LaneLoop::worker_left_there(uint32_t worker) {
  auto done = std::make_shared<std::promise<void>>(); // broken if the loop ends before
  std::future<void> is_done = done->get_future();
  orders_.send([this, worker, done = std::move(done)] {
    for (SlotRing *ring : rings_)
      ring->reclaim(worker);
    worker_left(worker);
    done->set_value();
  });
  return is_done;
}
// [worker-left-there]

void LaneLoop::worker_left(uint32_t worker) {
  for (const auto &lane : lanes_)
    lane->worker_left(worker);
}

// [look-around]
bool LaneLoop::arm() {
  return std::ranges::all_of(lanes_, [](const auto &lane) { return lane->arm(); });
}

void LaneLoop::take_events(bool may_sleep) {
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

void LaneLoop::note_what_is_up() {
  const auto up = static_cast<uint32_t>(
      std::ranges::count_if(lanes_, [](const auto &lane) { return lane->is_up(); }));
  if (up == lanes_.size() && up == up_)
    return;
  std::string_view why;
  for (const auto &lane : lanes_)
    if (!lane->is_up())
      why = lane->why();
  state_.note(std::exchange(up_, up), up, why);
}

void LaneLoop::look_at(int fd) {
  if (fd == orders_.fd())
    orders_.carry_out();
  else if (fd == bell_fd_) {
    // Nearly always it is the doorbell. If it is not, somebody joins or leaves.
    uint64_t rings;
    stats_.other_calls += 1;
    if (read(doorbell_, &rings, sizeof rings) < 0 && is_first_)
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

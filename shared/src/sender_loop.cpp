// SPDX-License-Identifier: MIT
#include "sender_loop.hpp"

#include "caller_lanes.hpp"
#include "one_at_a_time.hpp"

#include <algorithm>
#include <exception>
#include <span>
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
      options.connections > RingHost::max_rings / options.servers.size() || options.threads == 0)
    throw Error(
        "SenderOptions",
        "slots must be a power of two, at most 2^24; slot_size a multiple of 64 bytes, at most "
        "1 MiB; all slots at most 2 GiB; largest_response at most "
        "64 MiB; group 1 to 255; the connections to all servers together 1 to 14; "
        "window and threads at least 1");
  return shape;
}

RingShape ring_shape(const SenderOptions &options, bool can_others_join) {
  const Shape shape = shape_of(options);
  const uint32_t by_default = can_others_join ? std::max(shape.slots / 2, 1U) : 0;
  return {.slots = shape.slots,
          .slot_size = shape.slot_size,
          .quota = options.quota == 0 ? by_default : options.quota,
          .appendix = AnswerTable::bytes_for(shape)};
}

uint32_t connections_of(const SenderOptions &options) {
  return static_cast<uint32_t>(options.servers.size()) * options.connections;
}

// A thread without a lane would be of no use, and several may not log at a time.
SenderOptions with_threads(SenderOptions options) {
  options.threads = std::min(options.threads, std::max(connections_of(options), 1U));
  if (options.threads > 1)
    options.log = one_at_a_time(std::move(options.log));
  return options;
}

constexpr uint32_t max_workers = 1024; // processes that have joined

} // namespace

SenderLoop::SenderLoop(const SenderOptions &options, std::vector<Link> links)
    : options_(with_threads(options)),
      host_(ring_shape(options_, !options_.name.empty() || !links.empty()),
            connections_of(options_), max_workers, options_.threads),
      state_(host_.rings()) {
  const NoSignals no_signals;
  const Shape shape = shape_of(options_);
  for (uint32_t i = 0; i < options_.threads; ++i)
    loops_.push_back(std::make_unique<LaneLoop>(i, options_, shape, host_, state_));
  host_.on_leave([this](uint32_t worker) { worker_left(worker); });
  for (Link &link : links)
    host_.invite(std::move(link));
  if (!options_.name.empty())
    host_.listen(options_.name, options_.members);
  try {
    for (const auto &loop : loops_)
      threads_.emplace_back([this, its = loop.get()] { run(*its); });
  } catch (...) { // the host has no more threads
    end();
    throw;
  }
}

SenderLoop::~SenderLoop() {
  end();
}

void SenderLoop::end() {
  for (const auto &loop : loops_)
    loop->stop();
  for (std::thread &thread : threads_)
    thread.join();
}

void SenderLoop::wait_until_up(milliseconds limit) {
  const auto [up, why] = state_.wait_until_up(limit);
  if (up == connections())
    return;
  // The log has the hint, on a line of its own.
  const size_t length = options_.log ? why.find('\n') : why.npos;
  throw Error("the connections", std::to_string(up) + " of " + std::to_string(connections()) +
                                     " are up; " + why.substr(0, length));
}

Caller SenderLoop::caller(Waiting waiting) {
  std::vector<CallerLane> lanes;
  for (uint32_t i = 0; i < host_.rings(); ++i)
    lanes.push_back({.ring = &host_.ring(i),
                     .answers = AnswerTable(host_.ring(i)),
                     .worker = SlotRing::own_worker,
                     .is_over = [this] { return !is_running(); }});
  return CallerLanes::caller(std::move(lanes), waiting);
}

Counts SenderLoop::counts() const {
  Counts all;
  for (const auto &loop : loops_)
    add(all, loop->counts());
  return all;
}

// In one of the threads.
void SenderLoop::run(LaneLoop &loop) {
  std::string why;
  try {
    loop.run();
  } catch (const std::exception &error) {
    why = error.what();
    if (options_.log)
      options_.log("the sender: " + why);
  }
  state_.end(why);
  for (const auto &other : loops_)
    other->stop();
  loop.end();
}

// [worker-left-everywhere]
// In the first thread, which lets nobody join before all have done this: the worker's number may be
// given again.
void SenderLoop::worker_left(uint32_t worker) {
  std::vector<std::future<void>> others;
  for (const auto &loop : std::span(loops_).subspan(1))
    others.push_back(loop->worker_left_there(worker));
  loops_.front()->worker_left(worker);
  for (const std::future<void> &other : others)
    other.wait();
}
// [worker-left-everywhere]

} // namespace rdmashared

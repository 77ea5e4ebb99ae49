// SPDX-License-Identifier: MIT
// A lane while it is up: sending. The answers: lane_answers.cpp. Connecting, and losing the
// connection: lane_connect.cpp.
#include "lane.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

Lane::Lane(SlotRing &ring, uint32_t server, const SenderOptions &options, const Shape &shape,
           rdma_event_channel *channel, Errands &errands, Stats &stats)
    : ring_(ring), options_(options), server_(options.servers.at(server)), shape_(shape),
      channel_(channel), errands_(errands), stats_(stats), answers_(ring, shape.largest),
      sent_(ring.shape().slots) {
  answers_.status().server = server;
  answers_.status().longest.store(longest_in(shape.window), std::memory_order_relaxed);
}

Lane::~Lane() {
  is_broken_ = true;
  say_down();
  connection_.reset();
  data_id_.reset();
  id_.reset();
  try {
    buried();
    fail_ready();
  } catch (const std::exception &error) { // the ring is damaged
    log(error.what());
  }
}

// [turn]
bool Lane::turn() {
  if (is_broken_ && !is_aside_)
    tear_down();
  if (state_ != State::up && state_ != State::draining)
    return fail_ready();
  bool has_taken = false;
  try {
    has_taken = take_completions();
    if (state_ == State::draining && under_way_ == 0)
      throw Error("the server", "it has closed");
  } catch (const Error &error) {
    lose(error.what());
    return true;
  }
  const bool has_sent = send();
  return (state_ != State::up && fail_ready()) || has_sent || has_taken;
}

bool Lane::arm() {
  if (is_broken_ && !is_aside_)
    return false;
  if (connection_ && !connection_->arm()) {
    stats_.other_calls += 1;
    return false;
  }
  // Requests for which there is no room are no reason to stay awake: a completion makes room, and
  // wakes us.
  return (state_ == State::up && !may_send()) || ring_.arm();
}
// [turn]

void Lane::on_completion_event() {
  if (connection_)
    connection_->take_event();
  stats_.other_calls += 1;
}

// [send]
// Whether requests that come now could go.
bool Lane::may_send() const {
  return cut_.is_empty() && held_.count == 0 && under_way_ < window_ &&
         connection_->runs.queue.room() > 0;
}

SlotRun Lane::next_run(uint32_t max_slots) {
  return held_.count > 0 ? std::exchange(held_, {}) : ring_.take(max_slots);
}

bool Lane::send() {
  SendQueue &queue = connection_->runs.queue;
  while (queue.room() > 0 && (!cut_.is_empty() || take_group()))
    cut_.add_next(queue, mirror_);
  const uint64_t posts = queue.posts();
  try {
    queue.post();
  } catch (const Error &error) {
    lose(error.what());
  }
  stats_.posts += queue.posts() - posts;
  return queue.posts() != posts;
}

// All that is ready now is a group; nobody waits for more. While this one is being sent, the next
// one gathers.
bool Lane::take_group() {
  if (state_ != State::up || under_way_ == window_)
    return false;
  SlotRun run;
  // It needs more of the window than this server allows; the connection before had a larger one.
  while (runs_of((run = next_run(std::min(options_.group, window_ - under_way_))).count) > window_)
    fail(run);
  if (run.count == 0)
    return false;
  if (runs_of(run.count) > window_ - under_way_) { // a long message: until answers make room
    held_ = run;
    return false;
  }
  uint32_t bytes = 0, messages = 0;
  for (uint32_t at = 0; at < run.count; ++messages) {
    // A run has no more messages than slots. The server would close the connection for all.
    if (under_way_ == window_)
      throw Error("the ring", "it has given more requests than the window has room for");
    const uint64_t position = run.position + at;
    const uint32_t before = at * ring_.shape().slot_size;
    bytes = before + note_sent(ring_.message(run, at), position);
  }
  cut_ = Cut(run.first, run.count, bytes);
  stats_.count_group(messages);
  return true;
}
// [send]

// A worker can write anything there.
Kind Lane::checked_kind(uint32_t claimed) const {
  const auto kind = static_cast<Kind>(claimed);
  const bool is_possible = kind == Kind::post || (kind == Kind::long_request && shape_.largest > 0);
  return is_possible ? kind : Kind::request;
}
// The header is written here, from what the ring says: a worker whose message makes no sense must
// not be able to make the server close the connection, which is the others' as well. A worker that
// changes its message after publishing it can still do that.
uint32_t Lane::note_sent(const SlotMessage &message, uint64_t position) {
  SlotHeader claimed{}; // by the worker
  if (message.data.size() >= sizeof claimed)
    claimed = from_wire(copied_header(message.data.data()));
  const size_t room = message.slots * size_t{ring_.shape().slot_size} - sizeof claimed;
  Sent &sent = sent_.at(message.slot);
  if (sent.state == Sent::State::sent)
    throw Error("the ring", "it is damaged: a slot without an answer is ready again");
  sent = {.position = position,
          .length = static_cast<uint32_t>(std::min<size_t>(claimed.length, room)),
          .worker = static_cast<uint16_t>(message.worker),
          .slots = static_cast<uint16_t>(message.slots),
          .service = static_cast<uint8_t>(claimed.kind >> 8),
          .state = Sent::State::sent,
          .kind = checked_kind(claimed.kind & 0xff)};
  if (const auto gone = gone_.find(message.worker); gone != gone_.end() && position < gone->second)
    answers_.abandon(position);
  under_way_ += runs_of(sent.slots);
  const SlotHeader header = header_of(message_of(sent, message.slot));
  std::memcpy(ring_.data().data() + size_t{message.slot} * ring_.shape().slot_size, &header,
              sizeof header);
  return static_cast<uint32_t>(sizeof header) + sent.length;
}

// A request as it goes over the wire.
Message Lane::message_of(const Sent &sent, uint32_t slot) const {
  return {.kind = sent.kind,
          .service = sent.service,
          .slot = slot,
          .slots = sent.slots,
          .length = sent.length,
          .id = uint64_t{sent.worker} << position_bits |
                (sent.position & ((uint64_t{1} << position_bits) - 1))};
}

SlotRun Lane::slots_of_sent(uint32_t slot) const {
  return {.position = sent_[slot].position, .first = slot, .count = sent_[slot].slots};
}

bool Lane::fail_ready() {
  bool has_failed = false;
  for (SlotRun run; (run = next_run(SlotRing::longest_run)).count > 0; has_failed = true)
    fail(run);
  return has_failed;
}

void Lane::fail(const SlotRun &run) {
  for (uint32_t at = 0; at < run.count;) {
    const uint64_t position = run.position + at;
    const SlotMessage message = ring_.message(run, at);
    note_sent(message, position);
    finish(message.slot, Outcome::not_sent, 0);
  }
  stats_.wakes += answers_.wake().calls;
}

} // namespace rdmashared

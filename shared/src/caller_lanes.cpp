// SPDX-License-Identifier: MIT
#include "caller_lanes.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Link, rdmacommon::RingWorker, rdmacommon::SlotRing,
    rdmacommon::SlotRun, rdmacommon::Where;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// For this process the lane leads nowhere from here on. A sender that has died cannot say so.
[[noreturn]] void give_up(CallerLane &lane, const char *why, Where where) {
  lane.give_up();
  throw Error("the sender", why, where);
}

[[noreturn]] void gone(CallerLane &lane, Where where) {
  give_up(lane, "it is gone", where);
}

Kind kind_of(const RequestOptions &options) {
  return options.room == RequestOptions::any_length ? Kind::long_request : Kind::request;
}

// [collect]
// Calls `use` with the answer where it lies, and gives its slots back, however that ends.
template <typename Use> void collect(CallerLane &lane, const SlotRun &run, Use use) {
  struct GiveBack {
    SlotRing &ring;
    const SlotRun &run;
    ~GiveBack() { ring.give_back(run); }
  } const give_back{*lane.ring, run};
  use(lane.answers.answer(run.position));
}

void use_answer(const AnswerTable::Answer &answer, const InPlace &in_place, Where where) {
  if (answer.outcome == Outcome::response)
    return in_place(answer.bytes);
  throw RequestFailed(answer.outcome,
                      {reinterpret_cast<const char *>(answer.bytes.data()), answer.bytes.size()},
                      where);
}
// [collect]

// @return false if `limit` has passed
bool wait_for(CallerLane &lane, uint64_t position, milliseconds limit, Waiting how, Where where) {
  if (!lane.answers.wait(position, limit, how, lane.is_over)) {
    if (lane.is_over && lane.is_over())
      gone(lane, where);
    return false;
  }
  if (lane.answers.is_waiting(position))
    gone(lane, where);
  return true;
}

} // namespace

SlotRun CallerLanes::slots_of(const CallerLane &lane, const Pending &pending) {
  return {.position = pending.position_,
          .first = static_cast<uint32_t>(pending.position_ & (lane.ring->shape().slots - 1)),
          .count = pending.slots_};
}

bool CallerLanes::is_ready(const Pending &pending) const {
  return !lanes_[pending.lane_].answers.is_waiting(pending.position_);
}

void CallerLanes::drop(const Pending &pending) {
  CallerLane &lane = lanes_[pending.lane_];
  lane.answers.drop(slots_of(lane, pending));
}

// [pending-wait]
bool CallerLanes::wait(Pending &pending, milliseconds limit, const InPlace &in_place) {
  CallerLane &lane = lanes_[pending.lane_];
  if (!is_ready(pending) && !lane.has_sender())
    gone(lane, pending.where_);
  if (!is_ready(pending) && !wait_for(lane, pending.position_, limit, pending.how_, pending.where_))
    return false;
  pending.forget();
  if (!lane.answers.is_answered(pending.position_))
    gone(lane, pending.where_);
  collect(lane, slots_of(lane, pending),
          [&](const AnswerTable::Answer &answer) { use_answer(answer, in_place, pending.where_); });
  return true;
}
// [pending-wait]

CallerLanes::CallerLanes(std::vector<CallerLane> lanes, Waiting waiting)
    : waiting_(waiting), lanes_(std::move(lanes)) {
  check_count();
  sort_by_server(0);
}

CallerLanes::CallerLanes(std::vector<Link> links, Waiting waiting) : waiting_(waiting) {
  for (Link &link : links) {
    joined_.push_back(std::make_unique<RingWorker>(std::move(link)));
    RingWorker *worker = joined_.back().get();
    for (uint32_t i = 0; i < worker->rings(); ++i)
      lanes_.push_back({.ring = &worker->ring(i),
                        .answers = AnswerTable(worker->ring(i)),
                        .worker = worker->number(),
                        .is_over = [worker] { return worker->is_alone(); }});
    sort_by_server(lanes_.size() - worker->rings());
  }
  check_count();
}

void CallerLanes::check_count() const {
  if (lanes_.size() > max_bells)
    throw Error("the caller", "its senders have more than 128 connections together");
}

void CallerLanes::check_server(std::optional<uint32_t> server, Where where) const {
  if (std::ranges::none_of(lanes_, [&](const CallerLane &lane) { return lane.leads_to(server); }))
    throw Error("the server", "there is no server " + std::to_string(server.value_or(0)), where);
}

// @param first of the lanes of one sender
void CallerLanes::sort_by_server(size_t first) {
  std::map<uint32_t, std::vector<uint32_t>> by_server;
  for (size_t i = first; i < lanes_.size(); ++i)
    by_server[lanes_[i].answers.status().server].push_back(static_cast<uint32_t>(i));
  for (auto &[server, its] : by_server)
    servers_.push_back(std::move(its));
}

// [claim]
// The servers take turns. Of the connections to one server, a thread keeps to the same one, so that
// groups stay long. A lane that is down or full is passed over.
std::optional<CallerLanes::Claimed>
CallerLanes::try_claim(uint32_t length, const RequestOptions &options, CallerLane *&full) {
  const uint32_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
  const size_t thread = std::hash<std::thread::id>()(std::this_thread::get_id());
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    const std::vector<uint32_t> &its = servers_[(turn + i) % servers_.size()];
    for (size_t j = 0; j < its.size(); ++j) {
      CallerLane &lane = lanes_[its[(lanes_[its.front()].worker + thread + j) % its.size()]];
      if (!lane.is_up() || !lane.leads_to(options.server))
        continue;
      if (auto claim = lane.ring->try_claim(lane.worker, length, options.where))
        return Claimed{lane, std::move(*claim)};
      full = full ? full : &lane;
    }
  }
  if (full)
    return std::nullopt;
  for (CallerLane &lane : lanes_)
    if (lane.is_over && lane.is_over())
      gone(lane, options.where);
  check_server(options.server, options.where);
  throw RequestFailed(Outcome::not_sent, "", options.where);
}

CallerLanes::Claimed CallerLanes::claim(uint32_t length, const RequestOptions &options) {
  CallerLane *full = nullptr;
  if (auto claimed = try_claim(length, options, full))
    return std::move(*claimed);
  return {*full,
          full->ring->claim(full->worker, length, options.limit, full->is_over, options.where)};
}
// [claim]

// @return bytes of the slots that it needs, with the header
uint32_t CallerLanes::checked_length(size_t bytes, const RequestOptions &options) const {
  const bool is_long = options.room == RequestOptions::any_length;
  const size_t longest = std::max(bytes, is_long ? 0 : options.room);
  for (const CallerLane &lane : lanes_) {
    // At least a slot, whatever another worker has written there.
    const uint64_t in_window = std::max(lane.answers.status().longest.load(), 1U);
    const size_t available =
        std::min<uint64_t>(lane.ring->longest_message(), in_window * lane.ring->shape().slot_size) -
        sizeof(rdmacommon::SlotHeader);
    if (longest > available)
      throw Error("a request",
                  "it or its response has " + std::to_string(longest) + " bytes, and " +
                      std::to_string(available) +
                      " fit: SenderOptions::slots, slot_size, window and quota make more",
                  options.where);
    if (is_long && lane.answers.largest() == 0)
      throw Error("a request", "any_length needs a SenderOptions::largest_response above 0",
                  options.where);
  }
  return static_cast<uint32_t>(longest + sizeof(rdmacommon::SlotHeader));
}

// [hand-over]
Pending CallerLanes::hand_over(Claimed claimed, std::span<const std::byte> bytes, Kind kind,
                               const RequestOptions &options) {
  auto &[lane, claim] = claimed;
  const uint64_t position = claim.position();
  const auto slot = static_cast<uint32_t>(position & (lane.ring->shape().slots - 1));
  const uint32_t slots = rdmacommon::slots_of(
      static_cast<uint32_t>(claim.data().size() - sizeof(rdmacommon::SlotHeader)),
      lane.ring->shape().slot_size);
  const rdmacommon::SlotHeader header = header_of({.kind = kind,
                                                   .service = options.service,
                                                   .slot = slot,
                                                   .slots = slots,
                                                   .length = static_cast<uint32_t>(bytes.size()),
                                                   .id = position});
  std::memcpy(claim.data().data(), &header, sizeof header);
  if (!bytes.empty())
    std::memcpy(claim.data().data() + sizeof header, bytes.data(), bytes.size());
  lane.answers.expect(position, kind == Kind::post ? AnswerState::unwanted : AnswerState::waiting);
  if (!claim.publish())
    give_up(lane, "it has given this process up", options.where);
  const auto number = static_cast<uint32_t>(&lane - lanes_.data());
  const Waiting how = options.waiting.value_or(waiting_);
  return {*this, number, position, slots, how, options.where};
}
// [hand-over]

Pending CallerLanes::request_async(std::span<const std::byte> bytes,
                                   const RequestOptions &options) {
  return hand_over(claim(checked_length(bytes.size(), options), options), bytes, kind_of(options),
                   options);
}

std::optional<Pending> CallerLanes::try_request_async(std::span<const std::byte> bytes,
                                                      const RequestOptions &options) {
  CallerLane *full = nullptr;
  auto claimed = try_claim(checked_length(bytes.size(), options), options, full);
  if (!claimed)
    return std::nullopt;
  return hand_over(std::move(*claimed), bytes, kind_of(options), options);
}

void CallerLanes::post(std::span<const std::byte> bytes, const RequestOptions &options) {
  hand_over(claim(checked_length(bytes.size(), options), options), bytes, Kind::post, options)
      .forget();
}

} // namespace rdmashared

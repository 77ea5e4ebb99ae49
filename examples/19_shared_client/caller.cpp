#include "caller.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

namespace shared_client {

using rdmacommon::Error, rdmacommon::Link, rdmacommon::RingWorker, rdmacommon::SlotRing,
    rdmacommon::SlotRun, rdmacommon::Where;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// How often who waits takes out of their slots what this process has not collected yet. Less than LaneOptions::keep.
constexpr milliseconds look_after_mine(200);

} // namespace

RequestFailed::RequestFailed(Outcome outcome, const std::string &why)
    : Error("the request", why, Where::here()), outcome_(outcome) {}

namespace {

// For this process the lane leads nowhere from here on. A sender that has died cannot say so.
[[noreturn]] void give_up(CallerLane &lane, const char *why) {
  std::atomic_ref(lane.is_given_up).store(1, std::memory_order_relaxed);
  throw Error("the sender", why, Where::here());
}

[[noreturn]] void gone(CallerLane &lane) {
  give_up(lane, "it is gone");
}

// [collect]
// Calls `use` with the answer where it lies, and gives its slots back, however that ends.
// @return false if there is none there any more
template <typename Use> bool collect(CallerLane &lane, const SlotRun &run, Use use) {
  if (!lane.answers.begin_to_collect(run.position))
    return false;
  struct GiveBack {
    Answers &answers;
    const SlotRun &run;
    ~GiveBack() { answers.done_with(run); }
  } const give_back{lane.answers, run};
  use(lane.answers.answer(run.position));
  return true;
}

void use_answer(const Answers::Answer &answer, const InPlace &in_place) {
  if (answer.outcome == Outcome::response)
    return in_place(answer.bytes);
  std::string why = words_for(answer.outcome);
  if (!answer.bytes.empty()) // of the server's handler
    why.append(": ").append(reinterpret_cast<const char *>(answer.bytes.data()),
                            answer.bytes.size());
  throw RequestFailed(answer.outcome, why);
}
// [collect]

// A request of this process that has no answer yet, in the slots that are claimed next.
std::optional<uint64_t> in_the_way(const CallerLane &lane) {
  const uint32_t slots = lane.ring->shape().slots;
  const uint64_t head = lane.ring->head();
  for (uint64_t i = head; i < head + std::min(slots, SlotRing::longest_run); ++i)
    if (const SlotRun run = lane.asked.at(static_cast<uint32_t>(i & (slots - 1)));
        run.count > 0 && lane.answers.is_waiting(run.position))
      return run.position;
  return std::nullopt;
}

// @return false if `limit` has passed
bool wait_for(CallerLane &lane, uint64_t position, milliseconds limit, Waiting how) {
  if (!lane.answers.wait(position, limit, how, lane.is_over))
    return false;
  if (lane.answers.is_waiting(position))
    gone(lane);
  return true;
}

} // namespace

Pending::~Pending() {
  if (caller_ && !lane_->answers.drop(run_))
    caller_->taken_out(*lane_, run_.position);
}

bool Pending::is_ready() const {
  return caller_ && !lane_->answers.is_waiting(run_.position);
}

// [pending-wait]
bool Pending::wait(milliseconds limit, const InPlace &in_place) {
  if (!caller_)
    throw Error("the response", "it has been collected", Where::here());
  if (!is_ready() && !caller_->wait(*lane_, run_.position, limit))
    return false;
  Caller &caller = *std::exchange(caller_, nullptr);
  if (collect(*lane_, run_, [&](const Answers::Answer &answer) { use_answer(answer, in_place); }))
    return true;
  const std::optional<Caller::TakenOut> its = caller.taken_out(*lane_, run_.position);
  if (!its)
    throw RequestFailed(Outcome::late, words_for(Outcome::late));
  use_answer({.outcome = its->outcome, .bytes = its->bytes}, in_place);
  return true;
}
// [pending-wait]

std::optional<std::vector<std::byte>> Pending::wait(milliseconds limit) {
  std::vector<std::byte> copy;
  if (!wait(limit,
            [&](std::span<const std::byte> bytes) { copy.assign(bytes.begin(), bytes.end()); }))
    return std::nullopt;
  return copy;
}

Caller::Caller(std::vector<Link> links, Waiting waiting) : waiting_(waiting) {
  for (Link &link : links) {
    joined_.push_back(std::make_unique<RingWorker>(std::move(link)));
    RingWorker *worker = joined_.back().get();
    for (uint32_t i = 0; i < worker->rings(); ++i)
      lanes_.push_back({.ring = &worker->ring(i),
                        .answers = Answers(worker->ring(i)),
                        .worker = worker->number(),
                        .is_over = [worker] { return worker->is_alone(); }});
  }
}

// [next-lane]
CallerLane &Caller::next_lane(const Ask &ask) {
  const uint32_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    CallerLane &lane = lanes_[(turn + i) % lanes_.size()];
    const LaneStatus &status = lane.answers.status();
    if (status.is_up.load(std::memory_order_acquire) != 0 &&
        std::atomic_ref(lane.is_given_up).load(std::memory_order_relaxed) == 0 &&
        (!ask.server || *ask.server == status.server))
      return lane;
  }
  for (CallerLane &lane : lanes_)
    if (lane.is_over && lane.is_over())
      gone(lane);
  throw RequestFailed(Outcome::not_sent, words_for(Outcome::not_sent));
}
// [next-lane]

// [hand-over]
SlotRun Caller::hand_over(CallerLane &lane, std::span<const std::byte> bytes, Kind kind,
                          const Ask &ask) {
  SlotRing &ring = *lane.ring;
  const size_t in_slots = lane.answers.largest() > 0 ? 0 : ask.room, // else it comes elsewhere
      most = ring.longest_message() - sizeof(rdmacommon::SlotHeader);
  if (std::max(bytes.size(), in_slots) > most)
    throw Error("a request",
                "it or its response has " + std::to_string(std::max(bytes.size(), in_slots)) +
                    " bytes, and " + std::to_string(most) + " fit",
                Where::here());
  const auto length = static_cast<uint32_t>(std::max(bytes.size(), in_slots));
  const uint32_t slots = rdmacommon::slots_of(length, ring.shape().slot_size);
  const uint32_t with_header = length + static_cast<uint32_t>(sizeof(rdmacommon::SlotHeader));
  std::optional<SlotRing::Claim> claim = ring.try_claim(lane.worker, with_header);
  if (!claim)
    claim.emplace(wait_for_slots(lane, with_header, ask.limit));
  const uint64_t position = claim->position();
  const auto slot = static_cast<uint32_t>(position & (ring.shape().slots - 1));
  const rdmacommon::SlotHeader header = header_of({.kind = kind,
                                                   .slot = slot,
                                                   .slots = slots,
                                                   .length = static_cast<uint32_t>(bytes.size()),
                                                   .id = position});
  std::memcpy(claim->data().data(), &header, sizeof header);
  if (!bytes.empty())
    std::memcpy(claim->data().data() + sizeof header, bytes.data(), bytes.size());
  lane.answers.expect(position, kind == Kind::post ? AnswerState::unwanted : AnswerState::waiting);
  const SlotRun run{.position = position, .first = slot, .count = slots};
  if (kind == Kind::request)
    lane.asked.set(run);
  if (!claim->publish())
    give_up(lane, "it has given this process up");
  return run;
}
// [hand-over]

// A ring that is full may be full of responses to this very process, which would wait for itself; or for another one, which waits
// for this one in turn. So who waits for room takes its own responses out of their slots.
SlotRing::Claim Caller::wait_for_slots(CallerLane &lane, uint32_t length, milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  for (;;) {
    const bool has_taken = take_out_ready();
    if (auto claim = lane.ring->try_claim(lane.worker, length))
      return std::move(*claim);
    if (has_taken)
      continue;
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    const std::optional<uint64_t> mine = in_the_way(lane);
    if (!mine || left.count() <= 0)
      return lane.ring->claim(lane.worker, length, std::max(left, milliseconds(0)), [&] {
        take_out_ready();
        return lane.is_over && lane.is_over();
      });
    wait_for(lane, *mine, std::min(left, look_after_mine), waiting_);
  }
}

// [take-out-ready]
// All of them: what is not in the way now may be when the ring has come round to it, and we still wait.
bool Caller::take_out_ready() {
  bool has_taken = false;
  const std::lock_guard lock(mutex_); // until it is in the map: who misses it looks there
  for (CallerLane &lane : lanes_)
    for (uint32_t slot = 0; slot < lane.asked.slots(); ++slot) {
      const SlotRun run = lane.asked.at(slot);
      has_taken |=
          run.count > 0 && collect(lane, run, [&](const Answers::Answer &answer) {
            taken_out_[{&lane, run.position}] = {
                .outcome = answer.outcome, .bytes = {answer.bytes.begin(), answer.bytes.end()}};
          });
    }
  return has_taken;
}
// [take-out-ready]

// Of whom an answer was, and is not in its slots any more. None: it has been taken back.
std::optional<Caller::TakenOut> Caller::taken_out(CallerLane &lane, uint64_t position) {
  const std::lock_guard lock(mutex_);
  auto node = taken_out_.extract({&lane, position});
  return node ? std::optional(std::move(node.mapped())) : std::nullopt;
}

// [wait]
// @return false if `limit` has passed
bool Caller::wait(CallerLane &lane, uint64_t position, milliseconds limit) {
  while (!wait_for(lane, position, std::min(limit, look_after_mine), waiting_)) {
    if (limit <= look_after_mine)
      return false;
    limit -= look_after_mine;
    take_out_ready(); // now and then the other responses are looked after
  }
  return true;
}
// [wait]

// [request]
Pending Caller::request_async(std::span<const std::byte> bytes, const Ask &ask) {
  CallerLane &lane = next_lane(ask);
  return {*this, lane, hand_over(lane, bytes, Kind::request, ask)};
}

void Caller::request(std::span<const std::byte> bytes, const InPlace &in_place, const Ask &ask) {
  if (!request_async(bytes, ask).wait(ask.limit, in_place))
    throw Error("the request", "no answer within " + std::to_string(ask.limit.count()) + " ms",
                Where::here());
}

std::vector<std::byte> Caller::request(std::span<const std::byte> bytes, const Ask &ask) {
  std::vector<std::byte> copy;
  request(
      bytes,
      [&](std::span<const std::byte> response) { copy.assign(response.begin(), response.end()); },
      ask);
  return copy;
}

void Caller::post(std::span<const std::byte> bytes, const Ask &ask) {
  hand_over(next_lane(ask), bytes, Kind::post, ask);
}
// [request]

uint32_t Caller::largest_response() const {
  return lanes_.empty() ? 0 : lanes_.front().answers.largest();
}

} // namespace shared_client

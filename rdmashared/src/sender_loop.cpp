// SPDX-License-Identifier: MIT
#include "sender_loop.hpp"

#include "bells.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

namespace rdmashared {

using rdmacommon::Error;

SenderLoop::SenderLoop(const SenderOptions &options, const Shape &shape,
                       std::function<void(int, std::string_view)> changed,
                       std::function<void(uint32_t)> free, std::function<void(uint32_t)> drop)
    : options_(options), shape_(shape), servers_(static_cast<uint32_t>(options.servers.size())),
      changed_(std::move(changed)), free_(std::move(free)), drop_(std::move(drop)),
      board_(servers_), waiting_(servers_ + 1), pool_(servers_ * options.connections) {
  for (uint32_t i = 0; i < pool_.size(); ++i)
    lanes_.push_back(std::make_unique<Lane>(i % servers_, options, shape, channel_.get(), loop_,
                                            pool_, stats_, *this));
  loop_.watch(channel_->fd, [this] {
    while (const rdmacommon::unique_cm_event event = rdmacommon::take_cm_event(channel_.get()))
      if (event->id->context)
        static_cast<Lane *>(event->id->context)->on_cm_event(*event);
  });
}

SenderLoop::~SenderLoop() {
  mark_ended();
  loop_.close();
}

void SenderLoop::mark_ended() {
  board_->is_over.store(1);
  for (const auto &worker : workers_) // also those that have not asked for it
    worker->member.event->ring();
  for (std::atomic<uint32_t> &bell : board_->bells)
    ring(bell, ~uint32_t{0});
  ring(board_->changes, ~uint32_t{0});
}

// ---- members

void SenderLoop::join(Member member) {
  loop_.send([this, its = std::make_shared<Member>(std::move(member))] {
    Worker &worker = *workers_.emplace_back(std::make_unique<Worker>(std::move(*its)));
    by_number_.at(worker.number) = &worker;
    try {
      // Each bell makes a new event, so nobody has to read it.
      loop_.watch(
          worker.member.doorbell->fd(), [] {}, true);
    } catch (const Error &error) { // this user has no more watches, for example
      options_.log(Level::warning, std::string("a process cannot join: ") + error.what());
      drop(worker);
    }
  });
}

// Takes nothing from it any more. leave() follows, and comes back for the rest.
void SenderLoop::drop(Worker &worker) {
  worker.has_left = true;
  drop_(worker.number);
}

// The answers to its requests are still to come, and a server may still write to its response
// buffers.
void SenderLoop::leave(uint32_t number) {
  loop_.send([this, number] {
    if (Worker *worker = by_number_.at(number)) {
      worker->has_left = true;
      free_if_gone(*worker);
    }
  });
}

void SenderLoop::free_if_gone(Worker &worker) {
  if (!worker.has_left || worker.under_way > 0)
    return;
  const uint16_t number = worker.number;
  for (const auto &lane : lanes_)
    lane->forget_buffers(number);
  loop_.forget(worker.member.doorbell->fd());
  by_number_.at(number) = nullptr;
  std::erase_if(workers_, [&](const auto &each) { return each.get() == &worker; });
  free_(number);
}

// ---- the loop

// [sender-turn]
void SenderLoop::run() {
  IdlePolicy idle_policy(options_.waiting);
  int looked = 0;
  for (uint32_t turns = 1; !is_stopped_; ++turns) {
    bool was_busy = false;
    was_busy |= take_answers();
    was_busy |= gather();
    if (was_busy)
      board_->busy.store(busy_, std::memory_order_relaxed);
    was_busy |= send();
    wake_workers(); // those with failed requests: take_answers() wakes the others
    if (was_busy) {
      idle_policy.note(std::exchange(looked, 0), true);
    } else if (looked < idle_policy.looks()) {
      ++looked;
      sched_yield();
    } else {
      idle_policy.note(std::exchange(looked, 0), false);
      if (arm() || !take_answers())
        sleep();
    }
    if (turns % busy_turns == 0)
      poll_events(Clock::now(), false);
  }
}
// [sender-turn]

bool SenderLoop::take_answers() {
  bool was_busy = false;
  for (const auto &lane : lanes_)
    was_busy |= lane->take();
  wake_workers();
  return was_busy;
}

// @return false if one was not armed: what has completed before that is not told, so look again
bool SenderLoop::arm() {
  bool is_armed = true;
  for (const auto &lane : lanes_)
    is_armed &= lane->arm();
  return is_armed;
}

void SenderLoop::sleep() {
  const auto has_submissions = [this] {
    return std::ranges::any_of(workers_, [](const auto &worker) {
      return !worker->has_left && worker->area.submitted().load() != worker->taken;
    });
  };
  sleep_unless(board_->is_asleep, has_submissions, [this] {
    auto until = Clock::time_point::max();
    for (const auto &lane : lanes_)
      until = std::min(until, lane->deadline());
    stats_.sleeps += 1;
    poll_events(until, true);
  });
}

void SenderLoop::poll_events(Clock::time_point until, bool may_sleep) {
  loop_.wait(until, may_sleep);
  for (const auto &lane : lanes_)
    lane->check_deadlines();
}

// ---- what the workers submit

// [gather]
// Takes what there is. Other workers may be about to submit: lets them run first, as long as that
// brings more. So requests go in groups, and a request that is alone waits for nobody.
bool SenderLoop::gather() {
  now_ = Clock::now();
  if (!take_submissions())
    return false;
  for (uint32_t i = 1; i < options_.group && busy_ > i; ++i) {
    sched_yield();
    if (!take_submissions())
      break;
  }
  return true;
}
// [gather]

// Starts with another worker each time, so that none is always the last.
bool SenderLoop::take_submissions() {
  bool was_busy = false;
  if (++first_worker_ >= workers_.size())
    first_worker_ = 0;
  const auto take_some = [&](size_t from, size_t to) {
    for (size_t i = from; i < to && i < workers_.size(); ++i)
      if (Worker &worker = *workers_[i];
          worker.area.submitted().load(std::memory_order_relaxed) != worker.taken)
        was_busy |= take_from(worker);
  };
  take_some(first_worker_, workers_.size());
  take_some(0, first_worker_);
  return was_busy;
}

bool SenderLoop::take_from(Worker &worker) {
  if (worker.has_left)
    return false;
  const Area &area = worker.area;
  const uint32_t count = area.submitted().load(std::memory_order_acquire) - worker.taken;
  if (count > area.queue_length()) {
    drop(worker);
    return true;
  }
  for (uint32_t i = 0; i < count; ++i)
    take(worker, area.queued(worker.taken++).load(std::memory_order_relaxed));
  return count > 0;
}

// [check-submission]
// A submission that makes no sense is dropped: a worker can spoil only its own requests.
void SenderLoop::take(Worker &worker, uint32_t entry) {
  const AreaShape &area = worker.shape;
  const uint32_t slot = entry & ~cancels;
  if (slot >= area.slots)
    return;
  Request &request = worker.requests[slot];
  if (entry != slot)
    return cancel(request);
  Submission what; // a copy: the worker can change it at any time
  std::memcpy(&what, &worker.area.submission(slot), sizeof what);
  std::atomic_signal_fence(std::memory_order_seq_cst); // the compiler does not read it again
  const uint64_t most = area.longest_from(slot);
  const bool is_long = what.want == Want::long_response;
  const bool is_possible = request.state == Request::State::none && what.want <= Want::nothing &&
                           what.length <= most && what.max_response <= most &&
                           (what.server == any_server || what.server < servers_) &&
                           (!is_long || what.response_buffer < area.long_responses);
  const uint64_t bytes = worker.bytes + bytes_of(what);
  if (!is_possible || bytes > uint64_t{area.slots} * area.slot_size) // more than the area has
    return;
  worker.bytes = bytes;
  request.state = Request::State::waiting;
  ++request.generation;
  request.is_cancelled = false;
  request.what = what;
  request.since = now_;
  request.is_timed = worker.taken % Times::sample == 1;
  request.deadline = what.limit_ms > 0 ? now_ + std::chrono::milliseconds(what.limit_ms)
                                       : Clock::time_point::max();
  if (worker.under_way++ == 0)
    ++busy_;
  queue_of(what).add(request);
}
// [check-submission]

// Sends at most one cancel message for each request: a message takes room in the ring from the
// other workers. The request ends at once, so a server that hangs does not keep its slots. But the
// server can write to the buffer of a long response until it has answered.
void SenderLoop::cancel(Request &request) {
  if (request.state == Request::State::none || std::exchange(request.is_cancelled, true))
    return;
  stats_.cancels += 1;
  if (request.state == Request::State::waiting)
    return finish(request, Outcome::expired, 0);
  const uint64_t id = id_of(request);
  request.lane->cancel(id);
  if (request.what.want == Want::long_response)
    return;
  request.lane->give_up(id);
  finish(request, Outcome::timed_out, 0);
}

// ---- sending

// The lanes take turns, each with a group.
bool SenderLoop::send() {
  bool has_sent = false;
  const bool has_waiting =
      std::ranges::any_of(waiting_, [](const Queues &each) { return !each.is_empty(); });
  if (has_waiting) {
    // [lanes-take-turns]
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (size_t i = 0; i < lanes_.size(); ++i) {
        if (send_group(*lanes_[(first_lane_ + i) % lanes_.size()]))
          goes_on = has_sent = true;
      }
    }
    first_lane_ = (first_lane_ + 1) % lanes_.size();
    // [lanes-take-turns]
    fail_waiting();
  }
  for (const auto &lane : lanes_)
    has_sent |= lane->post();
  return has_sent;
}

// Long responses need more than a place in the ring, so requests for them have queues of their own:
// others do not wait behind them. The queues take turns to be the first. If the ring has no room
// for a request, no other one goes: so room comes together for a large one. Its queue is next.
bool SenderLoop::send_group(Lane &lane) {
  Queues &own = waiting_[lane.server], &any = waiting_.back();
  const std::array queues{&own.others, &any.others, &own.long_ones, &any.long_ones};
  uint32_t count = 0;
  for (size_t i = 0; i < queues.size(); ++i) {
    const size_t turn = (lane.turn + i) % queues.size();
    auto &queue = *queues[turn];
    const uint32_t before = count;
    while (count < options_.group && send_one(lane, queue))
      ++count;
    if (!queue.is_empty() && !lane.has_room(slots_of(queue.first()))) {
      lane.turn = count > before ? turn + 1 : turn;
      return count > 0;
    }
  }
  ++lane.turn;
  return count > 0;
}

// @return false if there is none, or no room for it
bool SenderLoop::send_one(Lane &lane, Queue &from) {
  while (!from.is_empty()) {
    Request &request = from.first();
    const auto failure = failure_of(lane, request);
    if (!failure)
      return send_request(lane, request);
    finish(request, *failure, 0);
  }
  return false;
}

// The failure of a request that no lane will send; nothing if this lane or another may send it.
std::optional<Outcome> SenderLoop::failure_of(Lane &lane, const Request &request) const {
  if (request.worker->has_left || request.deadline <= now_)
    return Outcome::expired;
  if (request.what.want == Want::long_response &&
      lane.take_registration_failure(request.worker->number))
    return Outcome::not_sent;
  if (!may_send(lane, request) && std::ranges::none_of(lanes_, [&](const auto &each) {
        return serves(*each, request.what.server) && may_send(*each, request);
      }))
    return Outcome::no_room;
  return std::nullopt;
}

// A server that answers nothing has no more work for a worker than the worker has slots.
bool SenderLoop::may_send(const Lane &lane, const Request &request) {
  const Worker &worker = *request.worker;
  return lane.given_up(worker.number) < std::min(worker.shape.slots, most_given_up);
}

bool SenderLoop::send_request(Lane &lane, Request &request) {
  const Submission &what = request.what;
  const Worker &worker = *request.worker;
  const bool is_long = what.want == Want::long_response;
  if (!may_send(lane, request) || !lane.has_room(slots_of(request)) ||
      (is_long && !lane.can_take_long()))
    return false;
  while (lane.has_given_up(id_of(request)))
    ++request.generation;
  const Header header{.length = what.length,
                      .max_response = is_long ? worker.shape.largest : what.max_response,
                      .id = id_of(request),
                      .limit_ms = left(request.deadline),
                      .kind = is_long                      ? Kind::long_request
                              : what.want == Want::nothing ? Kind::post
                                                           : Kind::request,
                      .service = what.service};
  const auto bytes = worker.area.slots(request.slot).first(what.length);
  if (is_long) {
    auto buffer = lane.buffers_of(worker.number, worker.member.area);
    if (!buffer)
      return false;
    buffer->address += uint64_t{what.response_buffer} * buffer->length;
    lane.put_long(header, bytes, *buffer);
  } else
    lane.put(header, bytes);
  queue_of(what).remove(request);
  request.lane = &lane;
  request.state = Request::State::sent;
  if (request.is_timed) {
    stats_.waited.add(now_ - request.since);
    request.since = now_;
  }
  if (what.want == Want::nothing)
    finish(request, Outcome::response, 0); // its slots can be used again
  return true;
}

// Requests for a server without a connection are not sent.
void SenderLoop::fail_waiting() {
  for (uint32_t server = 0; server <= servers_; ++server)
    if (std::ranges::none_of(lanes_, [&](const auto &lane) { return serves(*lane, server); }))
      for (Queue *queue : {&waiting_[server].others, &waiting_[server].long_ones})
        while (!queue->is_empty())
          finish(queue->first(), Outcome::not_sent, 0);
}

// ---- answers

// [check-answer]
std::optional<Want> SenderLoop::answered(Lane &lane, const Header &header,
                                         std::span<const std::byte> bytes) {
  const RequestId id = RequestId::unpacked(header.id);
  Worker *worker = id.worker < max_workers ? by_number_[id.worker] : nullptr;
  if (worker == nullptr || id.slot >= worker->shape.slots)
    return std::nullopt;
  Request &request = worker->requests[id.slot];
  if (request.state != Request::State::sent || request.lane != &lane ||
      request.generation != id.generation)
    return std::nullopt;
  const Want want = request.what.want;
  const uint32_t most = request.what.max_response;
  const bool is_long = header.kind == Kind::long_response;
  if (header.kind == Kind::response && (want != Want::response || header.length > most))
    return std::nullopt;
  if (is_long && (want != Want::long_response || header.length > worker->shape.largest))
    return std::nullopt;
  const auto length = is_long ? header.length : std::min(static_cast<uint32_t>(bytes.size()), most);
  if (!is_long && !worker->has_left)
    std::memcpy(worker->area.slots(id.slot).data(), bytes.data(), length);
  if (request.is_timed)
    stats_.took.add(Clock::now() - request.since);
  finish(request, outcome_of(header.kind), length);
  return want;
}
// [check-answer]

// [finish]
void SenderLoop::finish(Request &request, Outcome outcome, uint32_t length) {
  Worker &worker = *request.worker;
  if (std::exchange(request.state, Request::State::none) == Request::State::waiting)
    queue_of(request.what).remove(request);
  stats_.outcomes[static_cast<size_t>(outcome)] += 1;
  worker.bytes -= bytes_of(request.what);
  if (--worker.under_way == 0)
    --busy_;
  if (worker.has_left)
    return free_if_gone(worker);
  Answer &answer = worker.area.answer(request.slot);
  answer.length = length;
  answer.outcome.store(1 + static_cast<uint32_t>(outcome), std::memory_order_release);
  const uint32_t bell = worker.number / 32;
  touched_[bell] |= uint32_t{1} << worker.number % 32;
  touched_bells_ |= uint32_t{1} << bell;
}
// [finish]

// A worker says that it sleeps, and then looks for its answer. Here it is the other way round, so
// one of the two sees the other. One call of the kernel wakes up to 32 workers.
void SenderLoop::wake_workers() {
  if (touched_bells_ == 0)
    return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (uint32_t bells = std::exchange(touched_bells_, 0); bells != 0; bells &= bells - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(bells));
    uint32_t to_wake = 0;
    for (uint32_t left = std::exchange(touched_[i], 0); left != 0; left &= left - 1) {
      const Worker *worker = by_number_[i * 32 + static_cast<uint32_t>(std::countr_zero(left))];
      if (worker == nullptr)
        continue;
      const Area &area = worker->area;
      if (must_wake(area.sleeps()))
        to_wake |= left & -left;
      if (must_wake(area.wants_event())) {
        worker->member.event->ring();
        stats_.wakes += 1;
      }
      if (must_wake(area.wants_room())) {
        ring(area.room_bell(), ~uint32_t{0});
        stats_.wakes += 1;
      }
    }
    if (to_wake != 0) {
      ring(board_->bells[i], to_wake);
      stats_.wakes += 1;
    }
  }
}

// ---- lanes

void SenderLoop::lost(Lane &lane) {
  for (size_t i = workers_.size(); i-- > 0;) { // finish() can remove the one at i
    Worker &worker = *workers_[i];
    for (uint32_t slot = 0; slot < worker.shape.slots && worker.under_way > 0; ++slot)
      if (Request &request = worker.requests[slot];
          request.state == Request::State::sent && request.lane == &lane) {
        const bool is_last = worker.under_way == 1;
        finish(request, Outcome::lost, 0);
        if (is_last)
          break;
      }
  }
  wake_workers();
  changed_(0, lane.why()); // also if the connection has never come up
}

void SenderLoop::note(const Lane &lane, int more) {
  board_->connections[lane.server].fetch_add(static_cast<uint8_t>(more));
  ring(board_->changes, ~uint32_t{0}); // Caller::wait_connected()
  const auto down = std::ranges::find_if(lanes_, [](const auto &each) { return !each->is_up(); });
  changed_(more, more < 0 ? lane.why() : down == lanes_.end() ? std::string() : (*down)->why());
}

} // namespace rdmashared

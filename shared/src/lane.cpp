// A lane while it is up: sending, and handing out the answers. Connecting, and losing the connection: lane_connect.cpp.
#include "lane.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;
using std::chrono::milliseconds;

uint32_t Lane::now_ms() {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count());
}

Lane::Lane(SlotRing &ring, uint32_t server, const SenderOptions &options, const Shape &shape,
           rdma_event_channel *channel, Errands &errands, Stats &stats)
    : ring_(ring), options_(options), server_(options.servers.at(server)), shape_(shape),
      channel_(channel), errands_(errands), stats_(stats), answers_(ring, shape.largest),
      sent_(ring.shape().slots) {
  answers_.status().server = server;
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
  if (is_broken_ && !is_aside_) {
    now_ = now_ms();
    bury();
  }
  if (state_ != State::up && state_ != State::draining)
    return fail_ready();
  bool has_taken = false;
  try {
    has_taken = take_completions();
    if (state_ == State::draining && under_way_ == 0)
      throw Error("the server", "it has closed", Where::here());
  } catch (const Error &error) {
    lose(error.what());
    return true;
  }
  return (state_ == State::up ? send() : fail_ready()) || has_taken;
}

bool Lane::arm() {
  if (is_broken_ && !is_aside_)
    return false;
  if (connection_ && !connection_->arm()) {
    stats_.other_calls += 1;
    return false;
  }
  // Requests for which there is no room are no reason to stay awake: a completion makes room, and wakes us.
  return (state_ == State::up && !may_send()) || ring_.arm();
}
// [turn]

void Lane::on_completion_event() {
  if (connection_)
    connection_->take_event();
  stats_.other_calls += 1;
}

// [send]
bool Lane::may_send() const {
  return under_way_ < window_ && connection_->runs.queue.room() > 0;
}

bool Lane::send() {
  SendQueue &queue = connection_->runs.queue;
  while (may_send()) {
    // All that is ready now is a group; nobody waits for more. While this one is being sent, the next one gathers.
    const SlotRun run = ring_.take(std::min(options_.group, window_ - under_way_));
    if (run.count == 0)
      break;
    uint32_t bytes = 0, messages = 0;
    for (uint32_t at = 0; at < run.count; ++messages) {
      // A run has no more messages than slots. The server would close the connection for all.
      if (under_way_ == window_)
        throw Error("the ring", "it has given more requests than the window has room for",
                    Where::here());
      const uint64_t position = run.position + at;
      const uint32_t before = at * ring_.shape().slot_size;
      bytes = before + note_sent(ring_.message(run, at), position);
    }
    add_run(queue, mirror_, {.first = run.first, .count = run.count}, bytes);
    stats_.count_group(messages);
  }
  const uint64_t posts = queue.posts();
  try {
    queue.post();
  } catch (const Error &error) {
    lose(error.what());
  }
  stats_.posts += queue.posts() - posts;
  return queue.posts() != posts;
}

// [send]

// A worker can write anything there.
Kind Lane::checked_kind(uint32_t claimed) const {
  const auto kind = static_cast<Kind>(claimed);
  const bool is_possible = kind == Kind::post || (kind == Kind::long_request && shape_.largest > 0);
  return is_possible ? kind : Kind::request;
}

// [note-sent]
// The header is written here, from what the ring says: a worker whose message makes no sense must not be able to make the server
// close the connection, which is the others' as well. One that goes on writing when its message is published still is.
uint32_t Lane::note_sent(const SlotMessage &message, uint64_t position) {
  SlotHeader claimed{}; // by the worker
  if (message.data.size() >= sizeof claimed)
    claimed = from_wire(copied_header(message.data.data()));
  const size_t room = message.slots * size_t{ring_.shape().slot_size} - sizeof claimed;
  Sent &sent = sent_.at(message.slot);
  if (sent.state == Sent::State::sent)
    throw Error("the ring", "it is damaged: a slot comes again that has no answer", Where::here());
  sent = {.position = position,
          .length = static_cast<uint32_t>(std::min<size_t>(claimed.length, room)),
          .worker = static_cast<uint16_t>(message.worker),
          .slots = static_cast<uint8_t>(message.slots),
          .service = static_cast<uint8_t>(claimed.kind >> 8),
          .state = Sent::State::sent,
          .kind = checked_kind(claimed.kind & 0xff)};
  if (const auto gone = gone_.find(message.worker); gone != gone_.end() && position < gone->second)
    answers_.abandon(position);
  ++under_way_;
  const SlotHeader header = header_of(message_of(sent, message.slot));
  std::memcpy(ring_.data().data() + size_t{message.slot} * ring_.shape().slot_size, &header,
              sizeof header);
  return static_cast<uint32_t>(sizeof header) + sent.length;
}
// [note-sent]

// [take-completions]
bool Lane::take_completions() {
  Connection &with = *connection_;
  std::array<ibv_wc, 64> done{};
  const size_t count = with.poll(done);
  if (count > 0)
    now_ = now_ms();
  for (const ibv_wc &wc : std::span(done).first(count)) {
    stats_.count(wc);
    check_wc(wc, "a request or a receive");
    if (with.is_of_data(wc))
      take_long_response(wc);
    else if ((wc.opcode & IBV_WC_RECV) == 0)
      with.runs.queue.completed(wc);
    else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
             from_immediate(wc.imm_data).count == 0) { // it is closing: no more requests
      state_ = State::draining;
      answers_.status().is_up.store(0, std::memory_order_release);
      why_ = "the server is about to end";
    } else
      take_answers(with.receiver.received(wc));
  }
  stats_.wakes += answers_.wake().calls;
  if (count == 0)
    return false;
  stats_.posts +=
      with.repost(); // before the requests that the server may answer with these receives
  return true;
}
// [take-completions]

// [take-answers]
void Lane::take_answers(Run run) {
  for (uint32_t slot = run.first, end = run.first + run.count; slot < end;) {
    const Sent &sent = sent_.at(slot);
    if (sent.state != Sent::State::sent || sent.slots > end - slot)
      throw Error("an answer", "nobody has asked", Where::here());
    // A copy: the server, and each worker, can change what lies there at any moment.
    const SlotHeader wire =
        copied_header(answers_.slots().data() + size_t{slot} * ring_.shape().slot_size);
    const Message answer = checked_answer(wire, message_of(sent, slot), shape_);
    const uint32_t next = slot + sent.slots;
    finish(slot, answer.kind == Kind::failure ? Outcome::refused : Outcome::response,
           answer.length);
    slot = next;
  }
}

// [take-answers]
// [take-long-response]
void Lane::take_long_response(const ibv_wc &wc) {
  const Run run = connection_->data_receiver->received(wc);
  const Sent &sent = sent_.at(run.first);
  if (sent.state != Sent::State::sent || sent.slots != run.count || sent.kind != Kind::long_request)
    throw Error("a long response", "nobody has asked", Where::here());
  if (wc.byte_len > shape_.largest)
    throw Error("a long response", "it is longer than there is room", Where::here());
  finish(run.first, Outcome::response, wc.byte_len, true);
}
// [take-long-response]

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

// [finish]
// Lesson 18 waits for the completion as well before slots are used again. Here the answer is enough: the server has the request.
// What our NIC would send once more, the server's takes for a duplicate, and does not write.
void Lane::finish(uint32_t slot, Outcome outcome, uint32_t length, bool is_long) {
  Sent &sent = sent_.at(slot);
  --under_way_;
  if (answers_.deliver(sent.position, outcome, length, is_long)) {
    sent.state = Sent::State::answered;
    sent.answered_at = now_;
  } else { // a post, or dropped, or its worker has died
    sent.state = Sent::State::none;
    ring_.give_back(slots_of_sent(slot));
  }
}
// [finish]

// [worker-left]
void Lane::worker_left(uint32_t worker) {
  gone_[worker] = ring_.head(); // its number may be another's one day; that one claims behind this
  for (uint32_t slot = 0; slot < sent_.size(); ++slot) {
    Sent &sent = sent_[slot];
    if (sent.worker != worker)
      continue;
    if (sent.state == Sent::State::sent)
      answers_.abandon(sent.position);
    else if (std::exchange(sent.state, Sent::State::none) == Sent::State::answered)
      // It may have died before it gave them back, or while. If they have been given back, they stay as they are.
      ring_.give_back(slots_of_sent(slot));
  }
}
// [worker-left]

// [make-room]
// The ring's next slots are still somebody's, and others wait. An answer that has been there for a while gives way.
void Lane::make_room() {
  if (!ring_.is_waited_for())
    return;
  const uint32_t head = static_cast<uint32_t>(ring_.head() & (ring_.shape().slots - 1)),
                 end = std::min(head + SlotRing::longest_run, ring_.shape().slots), now = now_ms();
  for (uint32_t slot = head; slot < end; ++slot) {
    Sent &sent = sent_[slot];
    const milliseconds age(now - sent.answered_at);
    if (sent.state == Sent::State::answered && age >= options_.keep &&
        answers_.expire(sent.position)) {
      sent.state = Sent::State::none;
      ring_.give_back(slots_of_sent(slot));
    }
  }
}
// [make-room]

bool Lane::fail_ready() {
  bool has_failed = false;
  for (SlotRun run; (run = ring_.take()).count > 0; has_failed = true) {
    now_ = now_ms();
    for (uint32_t at = 0; at < run.count;) {
      const uint64_t position = run.position + at;
      const SlotMessage message = ring_.message(run, at);
      note_sent(message, position);
      finish(message.slot, Outcome::not_sent, 0);
    }
  }
  stats_.wakes += answers_.wake().calls;
  return has_failed;
}

} // namespace rdmashared

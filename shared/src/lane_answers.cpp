// SPDX-License-Identifier: MIT
// The answers' way through a lane, and the slots' way back to the ring.
#include "lane.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

// [take-completions]
bool Lane::take_completions() {
  Connection &with = *connection_;
  std::array<ibv_wc, 64> done{};
  const size_t count = with.poll(done);
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

void Lane::take_answers(Run run) {
  if (!joined_.is_open() && sent_.at(run.first).slots > SlotRing::longest_run)
    joined_.begin(run.first, sent_[run.first].slots);
  if (joined_.is_open()) {
    if (joined_.add(run))
      take_answer(joined_.first());
    return;
  }
  for (uint32_t slot = run.first, end = run.first + run.count; slot < end;) {
    const uint32_t slots = sent_.at(slot).slots;
    if (slots == 0 || slots > end - slot)
      throw Error("an answer", "it belongs to no request");
    take_answer(slot);
    slot += slots;
  }
}
void Lane::take_answer(uint32_t slot) {
  const Sent &sent = sent_.at(slot);
  if (sent.state != Sent::State::sent)
    throw Error("an answer", "it belongs to no request");
  // A copy: the server, and each worker, can change what lies there at any moment.
  const SlotHeader wire =
      copied_header(answers_.slots().data() + size_t{slot} * ring_.shape().slot_size);
  const Message answer = checked_answer(wire, message_of(sent, slot), shape_);
  finish(slot, answer.kind == Kind::failure ? Outcome::refused : Outcome::response, answer.length);
}

// [take-long-response]
void Lane::take_long_response(const ibv_wc &wc) {
  const Run run = connection_->data_receiver->received(wc);
  const Sent &sent = sent_.at(run.first);
  if (sent.state != Sent::State::sent || run.count != named_count(sent.slots) ||
      sent.kind != Kind::long_request)
    throw Error("a long response", "it belongs to no request");
  if (wc.byte_len > shape_.largest)
    throw Error("a long response", "it is longer than the room of its request");
  finish(run.first, Outcome::response, wc.byte_len, true);
}
// [take-long-response]

// [finish]
// Lesson 22 waits for the completion as well before slots are used again. Here the answer is
// enough: the server has the request. If our NIC sends a packet again, the server's NIC sees a
// duplicate, and does not write it.
void Lane::finish(uint32_t slot, Outcome outcome, uint32_t length, bool is_long) {
  Sent &sent = sent_.at(slot);
  under_way_ -= runs_of(sent.slots);
  if (answers_.deliver(sent.position, outcome, length, is_long)) {
    sent.state = Sent::State::answered;
    return;
  } // else it is a post, or dropped, or its worker has died
  sent.state = Sent::State::none;
  ring_.give_back(slots_of_sent(slot));
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
      // It may have died before it gave them back, or while. If they have been given back, they
      // stay as they are.
      ring_.give_back(slots_of_sent(slot));
  }
}
// [worker-left]

} // namespace rdmashared

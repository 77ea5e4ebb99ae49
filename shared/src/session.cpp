// SPDX-License-Identifier: MIT
#include "session.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

Session::Session(unique_cm_id &id, const Hello &hello, std::shared_ptr<SessionMemory> memory,
                 uint64_t token, uint32_t group, TimedHandler &handler, Stats &stats)
    : token_(token), group_(group), handler_(handler), stats_(stats), memory_(std::move(memory)),
      shape_(memory_->shape), requests_(size_t{shape_.slots} * shape_.slot_size),
      is_taken_(shape_.slots), data_address_(hello.data_address), data_rkey_(hello.data_rkey),
      awaited_(shape_.largest > 0 ? 2 : 1), connection_(id.get(), shape_.window, shape_.slots) {
  const int local = IBV_ACCESS_LOCAL_WRITE;
  requests_rkey_ = connection_.reg(requests_, local | IBV_ACCESS_REMOTE_WRITE)->rkey;
  if (!memory_->data.empty())
    data_mr_ = connection_.reg(memory_->data, local);
  mirror_ = {.mine = connection_.reg(memory_->answers, local),
             .slot_size = shape_.slot_size,
             .address = hello.answers_address,
             .rkey = hello.answers_rkey,
             .max_inline = inline_bytes};
  id_ = std::move(id); // the caller keeps it if anything has failed, and tells the client
}

// [accept]
void Session::accept() {
  const WelcomeBytes bytes =
      to_bytes(Welcome{.refusal = Refusal::none,
                       .window = shape_.window,
                       .requests_address = reinterpret_cast<uint64_t>(requests_.data()),
                       .requests_rkey = requests_rkey_,
                       .token = token_});
  began_ = Clock::now();
  id_->context = this;
  set_ack_timeout(id_.get());
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_accept(id_.get(), &parameters), "rdma_accept"); // the receives are posted
}

void Session::accept_data(unique_cm_id &id) {
  if (shape_.largest == 0 || data_id_)
    throw Error("a data connection", "this session expects none");
  connection_.add_data_connection(id.get(), 0, shape_.slots);
  try {
    id->context = this;
    const WelcomeBytes bytes = to_bytes(Welcome{});
    set_ack_timeout(id.get());
    rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
    check_errno(rdma_accept(id.get(), &parameters), "rdma_accept");
  } catch (...) { // the caller keeps the id, and tells the client
    connection_.data.reset();
    throw;
  }
  data_id_ = std::move(id);
}
// [accept]

// [session-turn]
bool Session::take(std::vector<Job> &jobs) {
  if (is_closed())
    return false;
  std::array<ibv_wc, 64> done{};
  const size_t count = connection_.poll(done);
  has_drained_ = count < done.size();
  if (count > 0 && connection_.is_armed()) // the event belongs to the completions just polled
    on_completion_event();
  for (const ibv_wc &wc : std::span(done).first(count)) {
    stats_.count(wc);
    check_wc(wc, "a request or a receive");
    if ((wc.opcode & IBV_WC_RECV) != 0)
      take_run(connection_.receiver.received(wc), wc.byte_len, jobs);
    else if (connection_.is_of_data(wc))
      connection_.data->queue.completed(wc);
    else
      connection_.runs.queue.completed(wc);
  }
  stats_.posts += connection_.repost(); // before the answers, after which the client may send more
  return count > 0;
}

bool Session::send() {
  if (is_closed())
    return false;
  take_finished();
  const bool has_sent = send_long_responses();
  return send_answers() || has_sent;
}
// [session-turn]

bool Session::has_nothing_else() const {
  return has_drained_ && ready_.empty() && long_.empty() && cut_.is_empty() &&
         !wants_to_say_closing_;
}

bool Session::arm() {
  if (is_closed())
    return true;
  if (!connection_.arm()) {
    stats_.other_calls += 1;
    return false;
  }
  const std::lock_guard lock(memory_->mutex);
  return memory_->finished.empty();
}

void Session::on_completion_event() {
  connection_.take_event();
  stats_.other_calls += 1;
}

// [take-run]
void Session::take_run(Run run, uint32_t length, std::vector<Job> &jobs) {
  // The client has announced a data connection. Without it, there is nowhere for a response to go.
  if (shape_.largest > 0 && !connection_.data)
    throw Error("a request", "the session's data connection is missing");
  // A handler may be reading the copy of a request that has no answer yet: a second request in the
  // same slots would change that copy.
  const auto marks = is_taken_.begin() + run.first;
  if (std::find(marks, marks + run.count, 1) != marks + run.count)
    throw Error("a request", "its slot has another request without an answer");
  // Copy only what has come. Otherwise a run without bytes would cost a copy of all its slots.
  const size_t bytes = std::min<size_t>(size_t{run.count} * shape_.slot_size, length);
  const auto copy = memory_->slot_of(memory_->copies, run.first);
  std::memcpy(copy.data(), memory_->slot_of(requests_, run.first).data(), bytes);
  if (joined_.is_open()) {
    if (joined_.add(run))
      accept_request(coming_, jobs);
    return;
  }
  const uint32_t end = run.first + run.count;
  for (uint32_t slot = run.first; slot < end;) {
    SlotHeader wire;
    std::memcpy(&wire, memory_->slot_of(memory_->copies, slot).data(), sizeof wire);
    // A run of 255 slots can be the first one of a longer message.
    const bool can_be_first_part = slot == run.first && run.count == SlotRing::longest_run;
    const uint32_t slots_left = can_be_first_part ? shape_.slots - slot : end - slot;
    const Message request = checked_request(wire, slot, slots_left, shape_);
    if (request.slots > run.count) {
      coming_ = request;
      joined_.begin(slot, request.slots);
      joined_.add(run);
      return;
    }
    accept_request(request, jobs);
    slot += request.slots;
  }
}

void Session::accept_request(const Message &message, std::vector<Job> &jobs) {
  std::fill_n(is_taken_.begin() + message.slot, message.slots, uint8_t{1});
  in_work_ += runs_of(message.slots);
  if (in_work_ > shape_.window)
    throw Error("a request", "the client has more requests under way than its window");
  jobs.push_back({make_request(message), &handler_, &memory_->is_closed});
}
// [take-run]

Request Session::make_request(const Message &message) {
  Request request;
  request.memory_ = memory_;
  request.id_ = message.id;
  request.slot_ = message.slot;
  request.slots_ = message.slots;
  request.length_ = message.length;
  request.kind_ = static_cast<uint16_t>(message.kind);
  request.worker_ = static_cast<uint16_t>(message.id >> position_bits);
  request.service_ = message.service;
  return request;
}

void Session::take_finished() {
  memory_->take_finished(just_finished_);
  for (const Message &answer : just_finished_)
    (answer.kind == Kind::data ? long_ : ready_).push_back(answer);
  just_finished_.clear();
}

// The answer is on its way, so the client may use the slots again.
void Session::release(const Message &answer) {
  in_work_ -= runs_of(answer.slots);
  std::fill_n(is_taken_.begin() + answer.slot, answer.slots, uint8_t{0});
}

// [send-data]
// The immediate data name the slots, and the completion at the client says how many bytes came. So
// the data are the message.
bool Session::send_long_responses() {
  if (long_.empty())
    return false;
  SendQueue &queue = connection_.data->queue;
  const size_t count = std::min<size_t>(long_.size(), is_established() ? queue.room() : 0);
  for (const Message &answer : std::span(long_).first(count)) {
    const uint64_t offset = uint64_t{answer.slot} * shape_.largest;
    ibv_sge from = piece(data_mr_, memory_->data.data() + offset, answer.length);
    queue.add({.sg_list = &from,
               .num_sge = answer.length > 0 ? 1 : 0,
               .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
               .imm_data = to_immediate({.first = answer.slot, .count = named_count(answer.slots)}),
               .wr = {.rdma = {.remote_addr = data_address_ + offset, .rkey = data_rkey_}}});
    release(answer);
    stats_.count_group(1);
  }
  long_.erase(long_.begin(), long_.begin() + static_cast<std::ptrdiff_t>(count));
  stats_.posts += count > 0;
  queue.post();
  return count > 0;
}
// [send-data]

// [send-answers]
bool Session::send_answers() {
  SendQueue &queue = connection_.runs.queue;
  // Requests come in any groups, and end in any order. Sorting makes runs of their answers again.
  if (!std::ranges::is_sorted(ready_, {}, &Message::slot))
    std::ranges::sort(ready_, {}, &Message::slot);
  size_t sent = 0;
  while (queue.room() > 0 && (!cut_.is_empty() || take_group(sent)))
    cut_.add_next(queue, mirror_);
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (wants_to_say_closing_ && cut_.is_empty() && queue.room() > 0) {
    add_run(queue, mirror_, {.first = 0, .count = 0}, 0);
    wants_to_say_closing_ = false;
  }
  const uint64_t posts = queue.posts();
  queue.post();
  stats_.posts += queue.posts() - posts;
  return queue.posts() != posts;
}

// @param sent how many of the ready answers have been taken
bool Session::take_group(size_t &sent) {
  if (sent == ready_.size())
    return false;
  const uint32_t first = ready_[sent].slot;
  uint32_t end = first, bytes = 0, messages = 0;
  do {
    const Message &answer = ready_[sent++];
    bytes = (answer.slot - first) * shape_.slot_size + static_cast<uint32_t>(sizeof(SlotHeader)) +
            answer.length;
    end = answer.slot + answer.slots;
    ++messages;
    release(answer);
  } while (sent < ready_.size() && ready_[sent].slot == end &&
           end + ready_[sent].slots - first <= group_);
  cut_ = Cut(first, end - first, bytes);
  stats_.count_group(messages);
  return true;
}
// [send-answers]

void Session::close() noexcept {
  if (memory_->is_closed.exchange(true))
    return;
  for (const unique_cm_id *id : {&id_, &data_id_})
    if (*id) {
      (*id)->context = nullptr;   // no event leads here any more
      rdma_disconnect(id->get()); // fails if the connection never was, or is not any more
    }
}

} // namespace rdmashared

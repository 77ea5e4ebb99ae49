// SPDX-License-Identifier: MIT
#include "session.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

Session::Session(unique_cm_id &id, const Hello &hello, const Shape &shape,
                 std::shared_ptr<SessionState> state, uint64_t token, uint32_t group, Stats &stats)
    : token_(token), version_(hello.version), shape_(shape), state_(std::move(state)),
      is_buffer_used_(shape.long_responses), awaited_(shape.long_responses > 0 ? 2 : 1),
      stats_(stats), connection_(id.get(), shape, group, stats) {
  connection_.set_peer(hello.address, hello.rkey);
  state_->long_responses.resize(size_t{shape.long_responses} * shape.largest);
  if (shape.long_responses > 0)
    long_responses_mr_ =
        reg_mr(connection_.pd(), state_->long_responses.data(), state_->long_responses.size(), 0);
  state_->session = this;
  id_ = std::move(id); // the caller keeps it if anything has failed, and tells the client
}

Session::~Session() {
  close(); // it is still open if its loop has ended
  connection_.destroy_queue_pairs();
  for (const auto *requests : {&ready_, &writing_})
    for (Received *request : *requests)
      request->done();
}

void Session::accept() {
  const WelcomeBytes bytes = to_bytes(Welcome{.version = version_,
                                              .rejection = Rejection::none,
                                              .window = shape_.window,
                                              .address = connection_.address(),
                                              .rkey = connection_.rkey(),
                                              .token = token_});
  began_ = Clock::now();
  id_->context = this;
  set_ack_timeout(id_.get());
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_accept(id_.get(), &parameters), "rdma_accept"); // the receives are posted
}

void Session::accept_data(unique_cm_id &id) {
  if (!lacks_data_connection())
    throw Error("a data connection", "this session expects none");
  set_ack_timeout(id.get()); // before the connection has a queue pair of this id: it may fail
  connection_.add_data_connection(id.get());
  id->context = this;
  const WelcomeBytes bytes = to_bytes(Welcome{});
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  data_id_ = std::move(id);
  check_errno(rdma_accept(data_id_.get(), &parameters), "rdma_accept");
}

bool Session::take(Batches &came, const std::array<Batches::Handling, 256> &handling) {
  if (is_closed())
    return false;
  const uint64_t run = uint64_t{shape_.slots} * (shape_.slot_size + sizeof(Received));
  const bool has_taken = connection_.take(
      [&](const Header &header, auto bytes) { message(header, bytes, came, handling); },
      [&] {
        const bool may = !came.is_empty() || state_->may_take(run);
        has_heard_ |= may; // a ping that waits for memory has no answer
        return may;
      });
  has_sent_ |= has_taken && !lacks_data_connection();
  for (const auto &batch : came.batches)
    if (batch)
      expected_ = batch->requests.size();
  for (; written_ < connection_.data_written(); ++written_) {
    ready_.push_back(writing_.front());
    writing_.pop_front();
  }
  return has_taken;
}

void Session::message(const Header &header, std::span<const std::byte> bytes, Batches &came,
                      const std::array<Batches::Handling, 256> &handling) {
  switch (header.kind) {
  case Kind::ping:
    ++pings_;
    return;
  case Kind::cancel:
    return cancel(header.id);
  case Kind::request:
  case Kind::long_request:
  case Kind::post: {
    auto &batch = came.batches[handling[header.service]];
    if (!batch)
      batch = std::make_unique<Batch>(state_, expected_, requests_);
    return take_request(header, bytes, *batch);
  }
  default:
    throw Error("a request", "it is of an unknown kind");
  }
}

void Session::take_request(const Header &header, std::span<const std::byte> bytes, Batch &batch) {
  Received &request = batch.requests.emplace_back();
  ++requests_;
  request.batch = &batch;
  request.header = header;
  request.offset = static_cast<uint32_t>(batch.bytes.size());
  const uint32_t most = longest_message(shape_.slots) * shape_.slot_size - Header::bytes;
  if (header.kind == Kind::long_request) {
    request.peer_buffer = response_buffer_in(bytes.first<ResponseBuffer::bytes>());
    bytes = bytes.subspan(ResponseBuffer::bytes);
    const auto free = std::ranges::find(is_buffer_used_, false);
    if (free == is_buffer_used_.end() || !connection_.has_data_connection())
      throw Error("a request", "the client has too many requests for long responses");
    request.place = static_cast<uint32_t>(free - is_buffer_used_.begin());
    *free = true;
    // Its failure goes by the ring.
    request.header.max_response = std::min(header.max_response, most);
  } else if (header.max_response > most) {
    throw Error("a request", "its response cannot be so long");
  } else if (header.max_response <= small_response) {
    request.place = batch.small_responses_length;
    batch.small_responses_length += header.max_response;
  }
  batch.is_awaited |= header.kind != Kind::post;
  if (header.kind != Kind::post && ++in_work_ > shape_.window)
    throw Error("a request", "the client has more requests under way than its window");
  batch.bytes.insert(batch.bytes.end(), bytes.begin(), bytes.end());
}

// The answer may have gone to the client before it cancelled. Then nothing is kept: the next
// process with the same number may use the id again. So the newest request with this id is the one.
void Session::cancel(uint64_t id) {
  const std::lock_guard lock(state_->mutex);
  for (Batch *batch : state_->batches)
    if (batch->is_awaited)
      for (Received &request : batch->requests)
        if (request.header.id == id && request.header.kind != Kind::post)
          return std::atomic_ref(request.is_cancelled).store(true, std::memory_order_relaxed);
}

// [send-answers]
bool Session::send() {
  if (is_closed() || !is_established())
    return false;
  for (; pings_ > 0 && connection_.has_room(1); --pings_)
    connection_.put({.kind = Kind::pong}, {});
  while (!ready_.empty() && send_one(*ready_.front()))
    ready_.pop_front();
  if (wants_to_say_closing_ && connection_.has_room(1)) {
    connection_.put({.kind = Kind::closing}, {});
    wants_to_say_closing_ = false;
  }
  return connection_.post();
}
// [send-answers]

// @return false if there is no room now
bool Session::send_one(Received &request) {
  const bool is_long = request.answer == Kind::long_response;
  // [send-long]
  if (is_long && !std::exchange(request.is_written, true)) { // first the bytes, then the answer
    request.is_written = connection_.write_data(
        long_responses_mr_.get(), request.response.first(request.length), request.peer_buffer);
    if (request.is_written)
      writing_.push_back(&request);
    return request.is_written;
  }
  // [send-long]
  std::span<const std::byte> bytes;
  if (request.answer == Kind::response)
    bytes = request.response.first(request.length);
  else if (request.answer == Kind::failure || request.answer == Kind::answer_too_long)
    bytes = request.reason_or_response;
  if (!connection_.has_room(slots_for(bytes.size(), shape_.slot_size)))
    return false;
  connection_.put({.length = request.length, .id = request.header.id, .kind = request.answer},
                  bytes);
  --in_work_;
  stats_.outcomes[static_cast<size_t>(outcome_of(request.answer))] += 1;
  if (request.header.kind == Kind::long_request)
    is_buffer_used_[request.place] = false;
  request.done();
  return true;
}

// A host that has died says nothing, and neither does a program that is stopped, whose host may die
// later. A client whose pings wait for memory must hear that this server lives. If the client takes
// nothing, the message waits in the ring, and only the probe goes out.
bool Session::probe_peer() {
  if (is_closed() || !is_established() || std::exchange(has_heard_, false))
    return false;
  if (connection_.has_room(1))
    connection_.put({.kind = Kind::alive}, {});
  connection_.probe();
  return true;
}

void Session::close() noexcept {
  if (state_->is_closed.exchange(true))
    return;
  state_->session = nullptr;
  for (const unique_cm_id *id : {&id_, &data_id_})
    if (*id) {
      (*id)->context = nullptr;   // no event leads here any more
      rdma_disconnect(id->get()); // fails if the connection never was, or is not any more
    }
}

} // namespace rdmashared

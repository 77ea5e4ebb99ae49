// SPDX-License-Identifier: MIT
#include "batch.hpp"

#include "session.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

namespace {

constexpr size_t longest_reason = 1024; // bytes
constexpr const char *no_memory = "it has no memory for its response (ServerOptions::memory)";

} // namespace

Batch::Batch(std::shared_ptr<SessionState> of, size_t expected, uint32_t requests_before)
    : state(std::move(of)), came(Clock::now()), before(requests_before) {
  requests.reserve(expected);
  const std::lock_guard lock(state->mutex);
  place = state->batches.insert(state->batches.begin(), this);
}

Batch::~Batch() {
  {
    const std::lock_guard lock(state->mutex);
    state->batches.erase(place);
  }
  state->give_back(taken);
}

bool Received::take_memory() {
  SessionState &state = *batch->state;
  if (header.kind == Kind::long_request)
    response = std::span(state.long_responses)
                   .subspan(size_t{place} * state.largest, state.largest)
                   .first(std::min(peer_buffer.length, state.largest));
  else if (header.max_response <= small_response) {
    response = {batch->small_responses.get() + place, header.max_response};
    std::memset(response.data(), 0, header.max_response);
  } else if (state.take(header.max_response)) {
    batch->taken += header.max_response;
    reason_or_response.resize(header.max_response);
    response = reason_or_response;
  } else
    return false;
  return true;
}

std::chrono::nanoseconds Batch::age() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) -
         came.time_since_epoch();
}

Job::Job(std::unique_ptr<Batch> batch) : batch_(*batch.release()) {
  batch_.left = static_cast<uint32_t>(size() + 1);
  batch_.small_responses =
      std::make_unique_for_overwrite<std::byte[]>(batch_.small_responses_length);
  const uint64_t memory = sizeof batch_ + size() * sizeof(Received) + batch_.bytes.size() +
                          batch_.small_responses_length;
  if (batch_.state->take(memory))
    batch_.taken = memory;
}

Job::~Job() {
  while (batch_.next++ < size())
    batch_.done();
  batch_.done();
}

// [handle]
bool Job::handle(const RequestHandler &handler, Stats &stats, const Pool *yields_to) {
  for (;;) {
    if (yields_to != nullptr && yields_to->has_urgent())
      return false;
    uint32_t i;
    if (batch_.state->is_closed || (i = batch_.next++) >= size())
      return true;
    Received &what = batch_.requests[i];
    if (!what.is_wanted()) {
      what.finish(Kind::expired, 0);
      continue;
    }
    const bool is_timed = (batch_.before + i) % Times::sample == 0;
    const auto began = is_timed ? Clock::now() : Clock::time_point();
    if (is_timed)
      stats.waited.add(began - batch_.came);
    Request request(what);
    try {
      // A request that the handler neither answers nor moves away fails at the end of this block.
      handler(std::move(request));
    } catch (...) {
      if (!request.is_answered())
        request.fail(words_of(std::current_exception()));
    }
    if (is_timed)
      stats.took.add(Clock::now() - began);
  }
}
// [handle]

std::chrono::milliseconds Received::left() const {
  using std::chrono::milliseconds;
  if (header.limit_ms == 0)
    return milliseconds::max();
  const auto age = std::max(batch->age(), std::chrono::nanoseconds(0)); // the clock may be late
  return std::max(milliseconds(0),
                  std::chrono::ceil<milliseconds>(milliseconds(header.limit_ms) - age));
}

void Received::finish(Kind with, uint32_t bytes) {
  if (header.kind == Kind::post)
    return done();
  answer = with;
  length = bytes;
  SessionState &state = *batch->state;
  if (state.answers->is_this_thread() && state.session != nullptr)
    return state.session->answered(*this);
  const auto answers = state.answers; // the other thread may destroy the batch at once
  answers->add(*this);
}

Request &Request::operator=(Request &&other) noexcept {
  if (this != &other) {
    const Request old(std::move(*this));
    what_ = std::exchange(other.what_, nullptr);
  }
  return *this;
}

std::span<const std::byte> Request::bytes() const {
  return what_->bytes();
}

std::span<std::byte> Request::response_space() const {
  if (!what_->has_memory())
    throw Error("the server", no_memory);
  return what_->response;
}

const Client &Request::client() const {
  return what_->batch->state->client;
}

void *Request::state() const {
  return what_->batch->state->state.get();
}

uint16_t Request::worker() const {
  return RequestId::unpacked(what_->header.id).worker;
}

uint8_t Request::service() const {
  return what_->header.service;
}

bool Request::wants_response() const {
  return what_->header.kind != Kind::post;
}

std::chrono::milliseconds Request::left() const {
  return what_->left();
}

bool Request::is_wanted() const {
  return what_->is_wanted();
}

void Request::reply(size_t length) {
  const bool is_long = what_->header.kind == Kind::long_request;
  if (!what_->has_memory())
    return fail(no_memory);
  const size_t available = what_->response.size();
  if (length > available)
    return end_in_words(
        Kind::answer_too_long,
        (is_long ? "SenderOptions::largest_response" : "RequestOptions::max_response") +
            std::string(" too small: ") + std::to_string(length) + " > " +
            std::to_string(available) + " bytes");
  std::exchange(what_, nullptr)
      ->finish(is_long ? Kind::long_response : Kind::response, static_cast<uint32_t>(length));
}

void Request::reply(std::span<const std::byte> response) {
  if (what_->has_memory() && !response.empty())
    std::memmove(what_->response.data(), response.data(),
                 std::min(response.size(), what_->response.size()));
  reply(response.size());
}

void Request::fail(std::string_view why) {
  end_in_words(Kind::failure, why);
}

void Request::end_in_words(Kind kind, std::string_view why) {
  const size_t most = std::min(size_t{what_->header.max_response}, longest_reason);
  const auto words = std::as_bytes(std::span(why)).first(std::min(why.size(), most));
  what_->reason_or_response.assign(words.begin(), words.end());
  std::exchange(what_, nullptr)->finish(kind, static_cast<uint32_t>(words.size()));
}

} // namespace rdmashared

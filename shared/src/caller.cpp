// SPDX-License-Identifier: MIT
// Layer: API. What caller.hpp declares. CallerArea does the work.
#include "rdmashared/caller.hpp"

#include "caller_area.hpp"

#include <rdmacommon/check.hpp>

#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Link, rdmacommon::Where;
using std::chrono::milliseconds;

const char *words_for(Outcome outcome) {
  switch (outcome) {
  case Outcome::response:
    return "it has been answered";
  case Outcome::refused:
    return "the server could not answer it";
  case Outcome::lost:
    return "the connection broke while it was under way; the server may have carried it out, or "
           "not";
  case Outcome::not_sent:
    return "there is no connection to the server; it has not been sent";
  case Outcome::expired:
    return "its time limit passed before the server began; it has not been carried out";
  }
  return "its outcome is unknown";
}

RequestFailed::RequestFailed(Outcome outcome, const std::string &server_said, Where where)
    : Error("the request", words_for(outcome) + (server_said.empty() ? "" : ": " + server_said),
            where),
      outcome_(outcome), server_said_(server_said) {}

Pending::Pending(Pending &&other) noexcept
    : area_(std::exchange(other.area_, nullptr)), slot_(other.slot_), slots_(other.slots_),
      room_(other.room_), how_(other.how_), where_(other.where_) {}

Pending::~Pending() {
  if (area_)
    area_->drop(*this);
}

bool Pending::is_ready() const {
  return area_ && area_->is_ready(*this);
}

bool Pending::wait(milliseconds limit, const InPlace &in_place) {
  if (!area_)
    throw Error("the response", "it has been collected already", where_);
  return area_->wait(*this, limit, in_place);
}

std::optional<std::vector<std::byte>> Pending::wait(milliseconds limit) {
  std::vector<std::byte> copy;
  if (!wait(limit,
            [&](std::span<const std::byte> bytes) { copy.assign(bytes.begin(), bytes.end()); }))
    return std::nullopt;
  return copy;
}

// [request]
Pending Caller::request_async(std::span<const std::byte> bytes, const RequestOptions &options) {
  return area_->request(bytes, options, Want::response);
}

std::optional<Pending> Caller::try_request_async(std::span<const std::byte> bytes,
                                                 const RequestOptions &options) {
  return area_->try_request(bytes, options, Want::response);
}

void Caller::request(std::span<const std::byte> bytes, const InPlace &in_place,
                     const RequestOptions &options) {
  if (!request_async(bytes, options).wait(options.limit, in_place))
    throw Error("the request", "no answer within " + std::to_string(options.limit.count()) + " ms",
                options.where);
}

std::vector<std::byte> Caller::request(std::span<const std::byte> bytes,
                                       const RequestOptions &options) {
  std::vector<std::byte> copy;
  request(
      bytes,
      [&](std::span<const std::byte> response) { copy.assign(response.begin(), response.end()); },
      options);
  return copy;
}

// Nobody waits for what becomes of it, so its slots are free once the sender has sent it.
void Caller::post(std::span<const std::byte> bytes, const RequestOptions &options) {
  area_->forget(area_->request(bytes, options, Want::nothing));
}
// [request]

Caller::Caller(Link link, Waiting waiting)
    : area_(std::make_unique<CallerArea>(std::move(link), waiting)) {}

Caller::Caller(Caller &&) noexcept = default;

Caller::~Caller() = default;

Caller Caller::join(const std::string &name, Waiting waiting, Where where) {
  return Caller(connect_to(name, std::chrono::seconds(5), where), waiting);
}

bool Caller::wait_connected(milliseconds limit, std::optional<uint32_t> server, Where where) {
  return area_->wait_connected(limit, server, where);
}

std::optional<size_t> Caller::wait_any(std::span<const Pending> requests, milliseconds limit,
                                       std::optional<Waiting> waiting, Where where) {
  return area_->wait_any(requests, limit, waiting, where);
}

void Caller::request_then(std::span<const std::byte> bytes, Then then,
                          const RequestOptions &options) {
  area_->request_then(bytes, std::move(then), options);
}

int Caller::fd() {
  return area_->fd();
}

size_t Caller::run_ready() {
  return area_->run_ready();
}

uint32_t Caller::largest_response() const {
  return area_->largest_response();
}

} // namespace rdmashared

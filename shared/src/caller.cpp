// SPDX-License-Identifier: MIT
#include "rdmashared/caller.hpp"

#include "caller_lanes.hpp"

#include <rdmacommon/ring_host.hpp>

#include <string>
#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Link, rdmacommon::Where;
using std::chrono::milliseconds;

RequestFailed::RequestFailed(Outcome outcome, const std::string &server_said, Where where)
    : Error("the request", words_for(outcome) + (server_said.empty() ? "" : ": " + server_said),
            where),
      outcome_(outcome), server_said_(server_said) {}

Pending::Pending(Pending &&other) noexcept
    : lanes_(std::exchange(other.lanes_, nullptr)), lane_(other.lane_), slots_(other.slots_),
      how_(other.how_), position_(other.position_), where_(other.where_) {}

Pending::~Pending() {
  if (lanes_)
    lanes_->drop(*this);
}

bool Pending::is_ready() const {
  return lanes_ && lanes_->is_ready(*this);
}

bool Pending::wait(milliseconds limit, const InPlace &in_place) {
  if (!lanes_)
    throw Error("the response", "it has been collected already", where_);
  return lanes_->wait(*this, limit, in_place);
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
  return lanes_->request_async(bytes, options);
}

std::optional<Pending> Caller::try_request_async(std::span<const std::byte> bytes,
                                                 const RequestOptions &options) {
  return lanes_->try_request_async(bytes, options);
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

void Caller::post(std::span<const std::byte> bytes, const RequestOptions &options) {
  lanes_->post(bytes, options);
}
// [request]

Caller::Caller(std::vector<Link> links, Waiting waiting)
    : lanes_(std::make_unique<CallerLanes>(std::move(links), waiting)) {}

Caller::Caller(std::unique_ptr<CallerLanes> lanes) : lanes_(std::move(lanes)) {}

Caller::Caller(Caller &&) noexcept = default;

Caller::~Caller() = default;

Caller Caller::join(const std::string &name, Waiting waiting, Where where) {
  std::vector<Link> links;
  links.push_back(rdmacommon::connect_to_ring(name, {}, std::chrono::seconds(5), where));
  return Caller(std::move(links), waiting);
}

bool Caller::wait_connected(milliseconds limit, std::optional<uint32_t> server, Where where) {
  return lanes_->wait_connected(limit, server, where);
}

std::optional<size_t> Caller::wait_any(std::span<const Pending> requests, milliseconds limit,
                                       std::optional<Waiting> waiting, Where where) {
  return lanes_->wait_any(requests, limit, waiting, where);
}

void Caller::request_then(std::span<const std::byte> bytes, Then then,
                          const RequestOptions &options) {
  lanes_->request_then(bytes, std::move(then), options);
}

int Caller::fd() {
  return lanes_->fd();
}

size_t Caller::run_ready() {
  return lanes_->run_ready();
}

uint32_t Caller::largest_response() const {
  return lanes_->largest_response();
}

} // namespace rdmashared

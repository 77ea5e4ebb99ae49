// SPDX-License-Identifier: MIT
#include "rdmashared/sender.hpp"

#include "caller_lanes.hpp"
#include "sender_loop.hpp"

#include <utility>

namespace rdmashared {

Sender::Sender(const SenderOptions &options, std::vector<rdmacommon::Link> links)
    : loop_(std::make_unique<SenderLoop>(options, std::move(links))) {}

Sender::~Sender() = default;

uint32_t Sender::connections() const {
  return loop_->connections();
}

void Sender::wait_until_up(std::chrono::milliseconds limit) {
  loop_->wait_until_up(limit);
}

bool Sender::is_running() const {
  return loop_->is_running();
}

std::string Sender::why() const {
  return loop_->why();
}

Caller Sender::caller(Waiting waiting) {
  return loop_->caller(waiting);
}

Counts Sender::counts() const {
  return loop_->counts();
}

} // namespace rdmashared

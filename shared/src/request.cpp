// SPDX-License-Identifier: MIT
#include "session_memory.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace rdmashared {

Request &Request::operator=(Request &&other) noexcept {
  if (this != &other) {
    const Request old(std::move(*this));
    memory_ = std::move(other.memory_);
    id_ = other.id_;
    slot_ = other.slot_;
    slots_ = other.slots_;
    length_ = other.length_;
    kind_ = other.kind_;
    worker_ = other.worker_;
    service_ = other.service_;
  }
  return *this;
}

Request::~Request() {
  if (memory_)
    fail("the server's handler has not answered it");
}

std::span<const std::byte> Request::bytes() const {
  return memory_->slot_of(memory_->copies, slot_).subspan(sizeof(rdmacommon::SlotHeader), length_);
}

std::span<std::byte> Request::room() const {
  const uint32_t largest = memory_->shape.largest;
  return is_long() ? std::span(memory_->data).subspan(size_t{slot_} * largest, largest)
                   : memory_->room_in_slots(slot_, slots_);
}

const Client &Request::client() const {
  return memory_->client;
}

void *Request::state() const {
  return memory_->state.get();
}

bool Request::wants_response() const {
  return static_cast<Kind>(kind_) != Kind::post;
}

bool Request::is_long() const {
  return static_cast<Kind>(kind_) == Kind::long_request;
}

// [reply]
void Request::reply(size_t length) {
  const size_t available = room().size();
  if (length > available) // short, because a slot of 64 bytes has room for 48 bytes of this
    return fail((is_long() ? "SenderOptions::largest_response" : "RequestOptions::room") +
                std::string(" too small: ") + std::to_string(length) + " > " +
                std::to_string(available) + " bytes");
  answer(static_cast<uint16_t>(is_long() ? Kind::data : Kind::response), length);
}

void Request::reply(std::span<const std::byte> response) {
  const std::span<std::byte> into = room();
  if (!response.empty())
    std::memmove(into.data(), response.data(), std::min(response.size(), into.size()));
  reply(response.size());
}

void Request::fail(std::string_view why) {
  const std::span<std::byte> into = memory_->room_in_slots(slot_, slots_);
  const size_t length = std::min(why.size(), into.size());
  std::copy_n(std::as_bytes(std::span(why)).begin(), length, into.begin());
  answer(static_cast<uint16_t>(Kind::failure), length);
}

// [answer]
void Request::answer(uint16_t kind, size_t length) {
  const std::shared_ptr<SessionMemory> memory = std::move(memory_);
  const bool is_wanted = wants_response();
  const Message message{.kind = is_wanted ? static_cast<Kind>(kind) : Kind::done,
                        .service = service_,
                        .slot = slot_,
                        .slots = slots_,
                        .length = is_wanted ? static_cast<uint32_t>(length) : 0,
                        .id = id_};
  const rdmacommon::SlotHeader wire = header_of(message);
  std::memcpy(memory->slot_of(memory->answers, slot_).data(), &wire, sizeof wire);
  memory->finish(message);
}
// [answer]
// [reply]

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// The requests of the callers of 22_credits, and their form in a slot.
#pragma once

#include <rdmacommon/check.hpp>

#include <arpa/inet.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

[[noreturn]] inline void refuse(const char *what, const std::string &why,
                                rdmacommon::Where where = rdmacommon::Where::here()) {
  throw rdmacommon::Error(what, why, where);
}

// The contents of a slot. The numbers are in network byte order.
struct Message {
  uint32_t length; // bytes of the text
  uint32_t id;     // the caller that asks, and that the answer is for
  std::array<char, 56> text;
};

// @param message a copy, which the peer cannot change
inline std::string_view text_of(const Message &message) {
  const uint32_t length = ntohl(message.length);
  if (length > message.text.size())
    refuse("the peer's message", "it is longer than its slot");
  return {message.text.data(), length};
}

// Each caller asks, waits for its answer, and asks again.
class Callers {
public:
  explicit Callers(uint32_t count) : asked_(count), waits_(count) {}

  // @return the next request of this caller
  std::string ask(uint32_t id) {
    ++asked_[id];
    waits_[id] = true;
    return request_of(id);
  }
  // The server answers with the text of the request.
  void answered(uint32_t id, std::string_view text) {
    if (id >= asked_.size() || !waits_[id] || text != request_of(id))
      refuse("the peer's answer", "it is not for a caller that waits");
    waits_[id] = false;
  }

private:
  std::string request_of(uint32_t id) const {
    return "request " + std::to_string(asked_[id]) + " of caller " + std::to_string(id);
  }
  std::vector<uint32_t> asked_; // number of requests, for each caller
  std::vector<bool> waits_;
};

// SPDX-License-Identifier: MIT
// The service that slot_server gives and shared_client asks for, made so that a response can be
// checked: it is a checksum of the request, over and over, as long as the request wants it.
#pragma once

#include <rdmacommon/check.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>

// The beginning of a request, in network byte order. Any bytes may follow.
struct ServiceHeader {
  uint32_t response_length;
  uint32_t microseconds; // time that the service takes
};
constexpr uint32_t please_fail = 0xffffffff; // as the response's length

inline uint64_t
checksum(std::span<const std::byte> bytes) { // like FNV-1a, but eight bytes at a time
  uint64_t sum = 14695981039346656037U, word = 0;
  for (; bytes.size() >= sizeof word; bytes = bytes.subspan(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    sum = (sum ^ word) * 1099511628211U;
  }
  for (const std::byte byte : bytes)
    sum = (sum ^ static_cast<uint64_t>(byte)) * 1099511628211U;
  return sum ^ sum >> 32; // a word's upper half changes the sum's lower half, too
}

// A number, over and over.
inline void fill(std::span<std::byte> bytes, uint64_t number) {
  for (; bytes.size() >= sizeof number; bytes = bytes.subspan(sizeof number))
    std::memcpy(bytes.data(), &number, sizeof number);
  if (!bytes.empty())
    std::memcpy(bytes.data(), &number, bytes.size());
}

inline bool is_filled(std::span<const std::byte> bytes, uint64_t number) {
  for (; bytes.size() >= sizeof number; bytes = bytes.subspan(sizeof number))
    if (std::memcmp(bytes.data(), &number, sizeof number) != 0)
      return false;
  return bytes.empty() || std::memcmp(bytes.data(), &number, bytes.size()) == 0;
}

// Another one for each `number`, so that a response that is another's is found out. One too short
// for the header is echoed.
inline void make_request(std::span<std::byte> bytes, size_t response_length, uint32_t microseconds,
                         uint64_t number) {
  fill(bytes, number);
  const ServiceHeader header{.response_length = htonl(static_cast<uint32_t>(response_length)),
                             .microseconds = htonl(microseconds)};
  if (bytes.size() >= sizeof header)
    std::memcpy(bytes.data(), &header, sizeof header);
}

// A thread of the pool belongs to a request until its work is done.
constexpr std::chrono::seconds longest_work{60};

// A rdmashared::Handler. It checks what the request asks for: a client can send anything.
inline size_t serve(std::span<const std::byte> request, std::span<std::byte> response) {
  ServiceHeader header{};
  if (request.size() < sizeof header) { // the response is the request
    std::ranges::copy(request.first(std::min(request.size(), response.size())), response.begin());
    return request.size();
  }
  std::memcpy(&header, request.data(), sizeof header);
  if (ntohl(header.response_length) == please_fail)
    throw rdmacommon::Error("the service", "it was asked to fail");
  const std::chrono::microseconds work(ntohl(header.microseconds));
  if (work > longest_work)
    throw rdmacommon::Error("the service", "it was asked to work for more than 60 s");
  if (work.count() > 0)
    std::this_thread::sleep_for(work); // the work of a slow service
  const size_t length = ntohl(header.response_length);
  fill(response.first(std::min(length, response.size())), checksum(request));
  return length;
}

// Returns true if the response is what serve() makes of the request.
inline bool is_response(std::span<const std::byte> response, std::span<const std::byte> request) {
  ServiceHeader header{};
  if (request.size() < sizeof header)
    return std::ranges::equal(response, request);
  std::memcpy(&header, request.data(), sizeof header);
  return response.size() == ntohl(header.response_length) && is_filled(response, checksum(request));
}

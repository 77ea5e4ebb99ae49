// SPDX-License-Identifier: MIT
// The messages of a cache and its clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

// A get is the key. A put is the length of the key in a byte, the key, and the value. The answer to
// a get is a byte, 1 if there is a value, and the value.
enum Service : uint8_t { get, put };
constexpr size_t longest_value = 1024, longest_key = 255; // bytes

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string put_request(std::string_view key, std::string_view value) {
  if (key.size() > longest_key || value.size() > longest_value)
    throw std::length_error("the key or the value is too long");
  return std::string(1, static_cast<char>(key.size())).append(key).append(value);
}

inline std::pair<std::string_view, std::string_view> put_in(std::string_view request) {
  const size_t length = request.empty() ? 0 : static_cast<unsigned char>(request[0]);
  if (request.size() < 1 + length || request.size() > 1 + length + longest_value)
    throw std::length_error("this is no put");
  return {request.substr(1, length), request.substr(1 + length)};
}

inline std::string get_answer(const std::optional<std::string> &value) {
  return value ? '\1' + *value : std::string(1, '\0');
}

inline std::optional<std::string> value_in(std::string_view answer) {
  if (answer.empty() || answer[0] == 0)
    return std::nullopt;
  return std::string(answer.substr(1));
}

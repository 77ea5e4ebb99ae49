// SPDX-License-Identifier: MIT
/// @file
/// Typed messages: each request is a struct with a number, and a Dispatcher gives it to the handler
/// of its type.
///
///     struct Sum { int64_t value; };
///     struct Add { static constexpr uint32_t type = 1; int64_t a, b; };
///
///     rdmashared::Dispatcher dispatcher; // at the server
///     dispatcher.on<Add>([](const Add &add) { return Sum{add.a + add.b}; });
///     rdmashared::Server server({}, dispatcher);
///
///     const Sum sum = rdmashared::ask<Sum>(caller, Add{.a = 2, .b = 3}); // at the client
///
/// The structs travel as they lie in memory, in little-endian byte order, which the compiler
/// checks. Both programs must be built from the same declarations; a Growing struct may differ.
///
/// This is not a format for everything. A message with strings, lists, or optional members is
/// better made by a serializer, such as Protocol Buffers: requests are bytes.
///
/// Written out in lesson 17_use_shared_client.
#pragma once

#include "rdmashared/caller.hpp"
#include "rdmashared/server.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rdmashared {

/// Returns true if all bytes of a struct belong to its members. Padding would send what was in
/// memory before. Not a constant expression if there is padding, or a pointer: the compiler cannot
/// read their bytes.
template <typename Struct> constexpr bool is_packed() {
  unsigned sum = 0;
  for (const unsigned char byte :
       std::bit_cast<std::array<unsigned char, sizeof(Struct)>>(Struct{}))
    sum += byte;
  return sum < ~0U;
}

/// A struct that can travel as its bytes. It must have no padding and no pointers; add members to
/// fill gaps.
template <typename Struct>
concept Plain = std::is_trivially_copyable_v<Struct> && std::is_class_v<Struct> &&
                (std::endian::native == std::endian::little) &&
                (std::is_empty_v<Struct> || std::bool_constant<is_packed<Struct>()>::value);

/// A Plain struct whose member `type` says which one it is.
template <typename Struct>
concept Typed = Plain<Struct> && std::is_same_v<decltype(Struct::type), const uint32_t>;

/// A Plain struct that may have more members, or fewer, at the other side:
///
///     struct Add {
///       static constexpr uint32_t type = 1;
///       static constexpr size_t oldest_size = 16; // bytes of the first version
///       int64_t a, b;
///       int64_t c = 0; // new: a client of the first version does not send it
///     };
///
/// New members come at the end, and have a default value, which stands for what the other side does
/// not send. Members never change and never go.
template <typename Struct>
concept Growing = Plain<Struct> && std::is_same_v<decltype(Struct::oldest_size), const size_t> &&
                  Struct::oldest_size <= sizeof(Struct);

/// Copies the bytes into a struct. In a Growing struct, members that are not there have their
/// default values, and bytes behind the last member are ignored.
/// @throws rdmacommon::Error if there are more bytes, or fewer
template <Plain Struct> Struct from_bytes(std::span<const std::byte> bytes) {
  bool is_right = bytes.size() == sizeof(Struct);
  if constexpr (Growing<Struct>)
    is_right = bytes.size() >= Struct::oldest_size;
  if (!is_right)
    throw rdmacommon::Error("a message", "it has " + std::to_string(bytes.size()) +
                                             " bytes in place of " +
                                             std::to_string(sizeof(Struct)));
  Struct value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

/// The bytes of a request: its type, 4 bytes in network byte order, and the struct.
template <Typed Struct>
std::array<std::byte, sizeof(uint32_t) + sizeof(Struct)> to_request(const Struct &value) {
  std::array<std::byte, sizeof(uint32_t) + sizeof(Struct)> bytes{};
  for (size_t i = 0; i < sizeof(uint32_t); ++i)
    bytes[i] = static_cast<std::byte>(Struct::type >> (24 - 8 * i));
  if constexpr (!std::is_empty_v<Struct>) // else its only byte has no value
    std::memcpy(bytes.data() + sizeof(uint32_t), &value, sizeof value);
  return bytes;
}

/// The bytes of a request of a type that is no struct: its type, 4 bytes in network byte order, and
/// what follows. Dispatcher::on() takes the handler of such a type.
inline std::vector<std::byte> to_request(uint32_t type, std::span<const std::byte> rest) {
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof type + rest.size());
  for (size_t i = 0; i < sizeof type; ++i)
    bytes.push_back(static_cast<std::byte>(type >> (24 - 8 * i)));
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

/// The bytes behind the type. Valid until the answer.
inline std::span<const std::byte> after_type(const Request &request) {
  return request.bytes().subspan(sizeof(uint32_t));
}

/// Sends a typed request and waits for its response.
/// @param how as for Caller::request(); `max_response` is the Response's size at least
/// @throws as Caller::request(); Error if the response is not a Response
template <Plain Response, Typed Message>
Response ask(Caller &caller, const Message &message, RequestOptions how = {}) {
  how.max_response = std::max(how.max_response, sizeof(Response));
  Response response{};
  caller.request(
      to_request(message),
      [&](std::span<const std::byte> bytes) { response = from_bytes<Response>(bytes); }, how);
  return response;
}

/// Answers a request with a struct; ask() at the other side knows its type. A client that knows
/// fewer members of a Growing one gets those.
template <Plain Response> void reply(Request &request, const Response &response) {
  auto bytes = std::as_bytes(std::span(&response, 1));
  if constexpr (Growing<Response>)
    bytes = bytes.first(
        std::clamp(request.response_space().size(), Response::oldest_size, bytes.size()));
  request.reply(bytes);
}

/// A RequestHandler that looks at a request's type. Add all handlers before you give it to a
/// Server.
class Dispatcher {
public:
  /// Adds the handler of one type.
  /// @param handler called by several threads at once. It has one of three forms:
  ///                - `Response(const Message &)`
  ///                - `Response(const Message &, const Request &)`: it knows the client
  ///                - `void(const Message &, Request &&)`: it answers by reply(), later if it moves
  ///                  the request away
  ///
  ///                A Response is a Plain struct. An exception becomes a failure
  /// @throws rdmacommon::Error if another type with this number has a handler
  template <Typed Message, typename Function> Dispatcher &on(Function handler) {
    const auto answer = [handler = std::move(handler)](Request &&request) {
      const auto message = from_bytes<Message>(after_type(request));
      if constexpr (std::is_invocable_v<Function, const Message &>)
        reply(request, handler(message));
      else if constexpr (std::is_void_v<std::invoke_result_t<Function, const Message &, Request>>)
        handler(message, std::move(request));
      else
        reply(request, handler(message, std::as_const(request)));
    };
    return on(Message::type, answer);
  }

  /// Adds the handler of a type that is no struct, for strings or what a serializer makes.
  /// @param handler finds the message by after_type()
  /// @throws rdmacommon::Error if this number has a handler
  Dispatcher &on(uint32_t type, RequestHandler handler) {
    if (!handlers_.try_emplace(type, std::move(handler)).second)
      throw rdmacommon::Error("a message", "type " + std::to_string(type) + " has two handlers");
    return *this;
  }

  /// Calls the handler of the request's type.
  /// @throws rdmacommon::Error if there is none, or the request has another length than its type
  void operator()(Request &&request) const {
    const std::span<const std::byte> bytes = request.bytes();
    uint32_t type = 0;
    if (bytes.size() < sizeof type)
      throw rdmacommon::Error("a message", "it is too short for a type");
    for (const std::byte byte : bytes.first(sizeof type))
      type = type << 8 | static_cast<uint32_t>(byte);
    const auto handler = handlers_.find(type);
    if (handler == handlers_.end())
      throw rdmacommon::Error("a message", "no handler for type " + std::to_string(type));
    handler->second(std::move(request));
  }

private:
  std::map<uint32_t, RequestHandler> handlers_;
};

} // namespace rdmashared

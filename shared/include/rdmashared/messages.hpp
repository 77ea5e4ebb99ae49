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
/// The structs travel as they lie in memory: both programs must be built from the same
/// declarations, for the same byte order. Use types of a fixed width.
///
/// Written out in lesson 17_use_shared_client.
#pragma once

#include "rdmashared/caller.hpp"
#include "rdmashared/server.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace rdmashared {

/// A struct that can travel as its bytes. It must hold no pointers.
template <typename Struct>
concept Plain = std::is_trivially_copyable_v<Struct> && std::is_class_v<Struct>;

/// A Plain struct whose member `type` says which one it is.
template <typename Struct>
concept Typed = Plain<Struct> && std::is_same_v<decltype(Struct::type), const uint32_t>;

/// A copy of the struct that these bytes are.
/// @throws rdmacommon::Error if there are more bytes, or fewer
template <Plain Struct> Struct from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(Struct))
    throw rdmacommon::Error("a message", "it has " + std::to_string(bytes.size()) +
                                             " bytes in place of " +
                                             std::to_string(sizeof(Struct)));
  Struct value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// The bytes of a request: its type, 4 bytes in network byte order, and the struct.
template <Typed Struct>
std::array<std::byte, sizeof(uint32_t) + sizeof(Struct)> to_request(const Struct &value) {
  std::array<std::byte, sizeof(uint32_t) + sizeof(Struct)> bytes;
  for (size_t i = 0; i < sizeof(uint32_t); ++i)
    bytes[i] = static_cast<std::byte>(Struct::type >> (24 - 8 * i));
  std::memcpy(bytes.data() + sizeof(uint32_t), &value, sizeof value);
  return bytes;
}

/// Sends a typed request and waits for its response.
/// @param how as for Caller::request(); the room is the Response's at least
/// @throws as Caller::request(); Error if the response is not a Response
template <Plain Response, Typed Message>
Response ask(Caller &caller, const Message &message, RequestOptions how = {}) {
  how.room = std::max(how.room, sizeof(Response));
  Response response{};
  caller.request(
      to_request(message),
      [&](std::span<const std::byte> bytes) { response = from_bytes<Response>(bytes); }, how);
  return response;
}

/// Answers a request with a struct; ask() at the other side knows its type.
template <Plain Response> void reply(Request &request, const Response &response) {
  request.reply(std::as_bytes(std::span(&response, 1)));
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
      const auto message = from_bytes<Message>(request.bytes().subspan(sizeof Message::type));
      if constexpr (std::is_invocable_v<Function, const Message &>)
        reply(request, handler(message));
      else if constexpr (std::is_void_v<std::invoke_result_t<Function, const Message &, Request>>)
        handler(message, std::move(request));
      else
        reply(request, handler(message, std::as_const(request)));
    };
    if (!handlers_.try_emplace(Message::type, answer).second)
      throw rdmacommon::Error("a message",
                              "type " + std::to_string(Message::type) + " has two handlers");
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

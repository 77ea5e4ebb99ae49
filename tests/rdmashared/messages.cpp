// SPDX-License-Identifier: MIT
// Typed messages, and what their handlers know.
#include "in_one_process.hpp"

#include <rdmashared/messages.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace in_one_process {
namespace {

struct Sum {
  int64_t value;
};
struct Add {
  static constexpr uint32_t type = 1;
  int64_t a, b;
};
struct Halve {
  static constexpr uint32_t type = 2;
  int64_t number;
};
struct Unknown {
  static constexpr uint32_t type = 77;
};
struct Large {
  std::array<char, 600> text;
};
struct Fill {
  static constexpr uint32_t type = 3;
  char with;
};

TEST(Messages, GoToTheHandlerOfTheirType) {
  Dispatcher dispatcher;
  dispatcher.on<Add>([](const Add &add) { return Sum{add.a + add.b}; })
      .on<Halve>([](const Halve &halve) {
        if (halve.number % 2 != 0)
          throw std::runtime_error("it is odd");
        return Sum{halve.number / 2};
      })
      .on<Fill>([](const Fill &fill) {
        Large large{};
        large.text.fill(fill.with);
        return large;
      });
  Running server({}, dispatcher);
  Connected connected(server);
  Caller &caller = connected.caller;
  EXPECT_EQ(rdmashared::ask<Sum>(caller, Add{.a = -2, .b = 5}, patient()).value, 3);
  EXPECT_EQ(rdmashared::ask<Sum>(caller, Halve{.number = 84}, patient()).value, 42);
  EXPECT_EQ(rdmashared::ask<Large>(caller, Fill{.with = 'x'}, patient()).text.back(), 'x');
  EXPECT_EQ(failure_of([&] {
              rdmashared::ask<Sum>(caller, Halve{.number = 1}, patient());
            }).server_said(),
            "it is odd");
  const auto unknown = failure_of([&] { rdmashared::ask<Sum>(caller, Unknown{}, patient()); });
  EXPECT_EQ(unknown.server_said().find("a message: no handler for type 77"), 0)
      << unknown.server_said();
  const auto another = failure_of([&] { ask(caller, std::string("\0\0\0\1short", 9)); });
  EXPECT_EQ(another.server_said().find("a message: it has 5 bytes in place of 16"), 0)
      << another.server_said();
  const auto cut = failure_of([&] { ask(caller, std::string("\0\0\0", 3)); });
  EXPECT_EQ(cut.server_said().find("a message: it is too short for a type"), 0)
      << cut.server_said();
  const auto wrong = error_of([&] { rdmashared::ask<Large>(caller, Add{}, patient()); });
  EXPECT_NE(wrong.find("it has 8 bytes in place of 600"), wrong.npos) << wrong;
}

TEST(Messages, TellTheirHandlersWhoseTheyAre) {
  Dispatcher dispatcher;
  dispatcher.on<Halve>([](const Halve &halve, const Request &request) {
    return Sum{halve.number / 2 + static_cast<int64_t>(request.client().connection) * 1000};
  });
  Running server({}, dispatcher);
  Connected first(server), second(server);
  EXPECT_EQ(rdmashared::ask<Sum>(first.caller, Halve{.number = 84}, patient()).value, 1042);
  EXPECT_EQ(rdmashared::ask<Sum>(second.caller, Halve{.number = 84}, patient()).value, 2042);
}

TEST(Messages, NeedNotBeStructs) {
  Dispatcher dispatcher;
  dispatcher.on(
      7, [](Request &&request) { request.reply(bytes("hello " + text(after_type(request)))); });
  EXPECT_THROW(dispatcher.on(7, [](Request &&) {}), Error);
  Running server({}, dispatcher);
  Connected connected(server);
  const auto request = to_request(7, bytes("world"));
  EXPECT_EQ(text(connected.caller.request(request, patient())), "hello world");
}

TEST(Messages, AreAnsweredLater) {
  Kept kept;
  Dispatcher dispatcher;
  dispatcher.on<Add>([&](const Add &, Request &&request) { kept.push(std::move(request)); });
  Running server({}, dispatcher);
  Connected connected(server);
  const auto bytes = to_request(Add{.a = 1, .b = 2});
  Pending pending = connected.caller.request_async(bytes, patient());
  Request request = kept.pop();
  EXPECT_FALSE(pending.is_ready());
  reply(request, Sum{3});
  const auto response = pending.wait(time_limit);
  ASSERT_TRUE(response);
  EXPECT_EQ(from_bytes<Sum>(*response).value, 3);
}

} // namespace
} // namespace in_one_process

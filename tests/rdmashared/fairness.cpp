// SPDX-License-Identifier: MIT
// No process, request or server takes from the others what they need: memory, room, or an answer.
#include "gate.hpp"
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace in_one_process {
namespace {

using std::chrono::steady_clock;

// A ring of 64 slots of 64 bytes. The server has no memory for requests, so it takes one run at a
// time: the others wait until all that it has taken is answered.
constexpr uint32_t slots = 64;
constexpr uint64_t only_for_the_rings = 3 * slots * 64;

TEST(Others, AClientWhoseMessagesWaitForMemoryKeepsItsConnection) {
  constexpr std::chrono::seconds silence(4);
  Kept kept;
  Running server({.memory = only_for_the_rings}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .slots = slots, .peer_timeout = silence});
  Pending first = connected.caller.request_async(bytes("1"), patient());
  Request request = kept.pop();
  Pending second = connected.caller.request_async(bytes("2"), patient()); // and pings wait behind
  EXPECT_FALSE(second.wait(silence + std::chrono::seconds(2)));
  request.reply(request.bytes());
  EXPECT_EQ(response_of(first), "1");
  request = kept.pop();
  request.reply(request.bytes());
  EXPECT_EQ(response_of(second), "2");
}

TEST(Others, AFailureInMoreWordsThanTheRingHasRoomForDoesNotBlockTheNextAnswers) {
  Running server({}, [](Request &&request) {
    if (text(request.bytes()) == "fail")
      request.fail(std::string(1000, 'x'));
    else
      request.reply(request.bytes());
  });
  Connected connected(
      {.servers = {server.where()}, .slots = 8, .slot_size = 32, .largest_response = 2000});
  const RequestFailed failure =
      failure_of([&] { ask(connected.caller, "fail", patient(RequestOptions::any_length)); });
  EXPECT_EQ(failure.outcome(), Outcome::refused);
  EXPECT_EQ(failure.server_said().find_first_not_of('x'), std::string::npos);
  EXPECT_FALSE(failure.server_said().empty());
  EXPECT_EQ(ask(connected.caller, "?"), "?");
}

// A worker that comes after another one, with the same number, uses the same ids.
TEST(Others, ACancelDropsNoPostOfAWorkerThatHasGone) {
  Queue<std::string> begun;
  Gate gate;
  Running server({.handler_threads = 1, .inline_services = 2}, [&](Request &&request) {
    if (request.service() == 1)
      return request.reply(bytes(std::to_string(request.worker())));
    begun.push(text(request.bytes()));
    if (text(request.bytes()) == "blocks")
      gate.wait();
    request.reply(0);
  });
  const OpenAtTheEnd at_the_end(gate);
  Connected connected(server);
  // The server takes messages in order, so it has taken those before this one.
  const auto number = [](Caller &of) {
    return text(of.call(bytes("?"), {.limit = time_limit, .service = 1}).bytes);
  };
  Pending blocks = connected.caller.request_async(bytes("blocks"), patient());
  EXPECT_EQ(begun.pop(), "blocks");
  std::optional<Caller> caller(connected.sender.caller());
  const std::string before = number(*caller);
  caller->post(bytes("post"), patient());
  number(*caller);
  do { // its number is free a little later
    caller.reset();
    caller.emplace(connected.sender.caller());
  } while (number(*caller) != before);
  Pending unwanted = caller->request_async(bytes("unwanted"), patient());
  number(*caller);
  unwanted.cancel();
  number(*caller);
  Pending last = connected.caller.request_async(bytes("last"), patient());
  gate.open();
  EXPECT_TRUE(last.take());
  EXPECT_EQ(begun.pop(), "post");
  EXPECT_EQ(begun.pop(), "last");
}

// The small ones are for one server, and the large one is for any: they wait in two queues.
TEST(Others, SmallRequestsDoNotKeepTheRoomFromALargeOne) {
  constexpr size_t before = 100, after = 300;
  Kept kept;
  Running server({.memory = only_for_the_rings}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .slots = slots});
  std::vector<Pending> pending;
  const auto ask_small = [&](size_t count) {
    RequestOptions how = patient();
    how.server = 0;
    for (size_t i = 0; i < count; ++i)
      pending.push_back(connected.caller.request_async(bytes("small"), how));
  };
  ask_small(1);
  Request request = kept.pop(); // until it is answered, the server takes no other one
  ask_small(before - 1);
  pending.push_back(connected.caller.request_async(bytes(std::string(2500, 'x')), patient()));
  ask_small(after);
  while (connected.sender.metrics().value("waiting_requests", "thread=\"0\"") < after)
    std::this_thread::yield(); // then the sender has seen the large one
  size_t came = 1;
  for (; request.bytes().size() < 100; ++came) {
    request.reply(request.bytes());
    request = kept.pop();
  }
  EXPECT_LT(came, before + after / 2);
  while (came++ < pending.size()) {
    request.reply(request.bytes());
    request = kept.pop();
  }
  request.reply(request.bytes());
}

// The request before it has a long limit, and waits for the only place of the window.
TEST(Others, ARequestThatIsCancelledWhileItWaitsGivesItsSlotsBackAtOnce) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .window = 1, .area_slots = 3});
  Pending first = connected.caller.request_async(bytes("1"), patient());
  Request request = kept.pop();
  Pending second = connected.caller.request_async(bytes("2"), patient());
  for (int i = 0; i < 10; ++i) {
    std::optional<Pending> third;
    for (const auto until = steady_clock::now() + time_limit;
         !third && steady_clock::now() < until;)
      third = connected.caller.try_request_async(bytes("3"), patient());
    ASSERT_TRUE(third);
    third->cancel();
  }
  request.reply(request.bytes());
  EXPECT_EQ(response_of(first), "1");
  request = kept.pop();
  request.reply(request.bytes());
  EXPECT_EQ(response_of(second), "2");
}

TEST(Others, AServerThatHangsDoesNotUseUpTheArea) {
  constexpr uint32_t area_slots = 4;
  Kept kept;
  Running hangs({}, keep_in(kept));
  Running works({}, [](Request &&request) { request.reply(request.bytes()); });
  Connected connected({.servers = {hangs.where(), works.where()}, .area_slots = area_slots});
  const RequestOptions the_first{.server = 0, .limit = time_limit};
  std::vector<Request> requests;
  for (uint32_t i = 0; i < area_slots; ++i) {
    const Pending given_up = connected.caller.request_async(bytes("?"), the_first);
    requests.push_back(kept.pop());
  }
  EXPECT_TRUE(connected.caller.call(bytes("?"), {.server = 1, .limit = time_limit}));
  // But it has no more work for this process than the process has slots.
  EXPECT_EQ(connected.caller.call(bytes("?"), the_first).outcome, Outcome::no_room);
  EXPECT_TRUE(kept.is_empty());
  // Requests for any server go to the other one.
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(connected.caller.call(bytes("?"), {.limit = time_limit}));
  for (Request &request : requests)
    request.reply(request.bytes());
  const std::string lane =
      R"(thread="0",lane="0",server=")" + address + ':' + std::to_string(hangs.server.port()) + '"';
  while (connected.sender.metrics().value("lane_requests", lane) > 0)
    std::this_thread::yield();
  Pending pending = connected.caller.request_async(bytes("?"), the_first);
  kept.pop().reply(bytes("!"));
  EXPECT_EQ(response_of(pending), "!");
}

} // namespace
} // namespace in_one_process

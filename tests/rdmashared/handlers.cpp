// SPDX-License-Identifier: MIT
// Requests that are answered at once, later, elsewhere, or never.
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>

namespace in_one_process {
namespace {

constexpr const char *not_answered = "the server's handler has not answered it";

TEST(Requests, AreAnsweredInAnyOrder) {
  for (const uint32_t workers : {0, 1, 3}) {
    Kept kept;
    Running server({.handler_threads = workers}, keep_in(kept));
    Connected connected(server);
    constexpr size_t count = 20;
    std::vector<Pending> pending;
    std::vector<Request> requests;
    for (size_t i = 0; i < count; ++i)
      pending.push_back(connected.caller.request_async(bytes(std::to_string(i)), patient()));
    for (size_t i = 0; i < count; ++i)
      requests.push_back(kept.pop());
    std::ranges::sort(requests, {},
                      [](const Request &one) { return std::stoi(text(one.bytes())); });
    for (size_t i = count; i-- > 0; requests.pop_back()) {
      for (size_t before = 0; before <= i; ++before)
        EXPECT_FALSE(pending[before].is_ready());
      requests[i].reply(bytes("answer " + std::to_string(i)));
      EXPECT_TRUE(requests[i].is_answered());
      EXPECT_EQ(response_of(pending[i]), "answer " + std::to_string(i));
    }
  }
}

TEST(Requests, WithResponsesOfTheirOwnConnection) {
  Kept kept;
  Running server({.handler_threads = 2}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .slots = 64, .largest_response = 5000});
  EXPECT_EQ(connected.caller.largest_response(), 5000);
  std::vector<Pending> pending;
  std::vector<Request> requests;
  const RequestOptions any_length = patient(RequestOptions::any_length);
  for (int i = 0; i < 4; ++i) {
    pending.push_back(connected.caller.request_async(bytes("?"), any_length));
    requests.push_back(kept.pop()); // one after the other, so they are in this order
  }
  // Beside them, one whose response comes in its slots.
  Pending in_slots = connected.caller.request_async(bytes("?"), patient());
  Request short_one = kept.pop();
  EXPECT_EQ(short_one.response_space().size(), 64);
  short_one.reply(bytes("short"));
  EXPECT_EQ(response_of(in_slots), "short");
  EXPECT_EQ(requests[3].response_space().size(), 5000);
  requests[3].reply(bytes(std::string(5000, 'd')));
  EXPECT_EQ(response_of(pending[3]), std::string(5000, 'd'));
  requests[2].reply(bytes(std::string(5001, 'c')));
  EXPECT_EQ(answer_too_long([&] { response_of(pending[2]); }),
            "SenderOptions::largest_response too small: 5001 > 5000 bytes");
  std::ranges::fill(requests[1].response_space().first(3000), std::byte{'b'});
  requests[1].reply(3000);
  EXPECT_EQ(response_of(pending[1]), std::string(3000, 'b'));
  requests[0].reply(size_t{0});
  EXPECT_EQ(response_of(pending[0]), "");
}

TEST(Requests, SpaceIsWhatWasAskedFor) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .slot_size = 64});
  Pending short_one = connected.caller.request_async(bytes("?"), patient());
  Request first = kept.pop();
  EXPECT_EQ(first.response_space().size(), 64); // a slot
  first.reply(bytes(std::string(65, 'x')));
  EXPECT_EQ(answer_too_long([&] { response_of(short_one); }),
            "RequestOptions::max_response too small: 65 > 64 bytes");
  Pending long_one = connected.caller.request_async(bytes("?"), patient(200));
  Request second = kept.pop();
  EXPECT_EQ(second.response_space().size(), 4 * 64);
  second.reply(bytes(std::string(257, 'x')));
  EXPECT_EQ(answer_too_long([&] { response_of(long_one); }),
            "RequestOptions::max_response too small: 257 > 256 bytes");
  Pending whole = connected.caller.request_async(bytes("?"), patient(200));
  kept.pop().reply(bytes(std::string(256, 'x')));
  EXPECT_EQ(response_of(whole), std::string(256, 'x'));
}

TEST(Requests, WaitForRoomInTheirArea) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .area_slots = 2});
  Pending first = connected.caller.request_async(bytes("1"), patient()),
          second = connected.caller.request_async(bytes("2"), patient());
  EXPECT_FALSE(connected.caller.try_request_async(bytes("3"), patient()));
  const std::string why = error_of(
      [&] { connected.caller.request(bytes("3"), {.limit = std::chrono::milliseconds(1)}); });
  EXPECT_NE(why.find("there is no room for it"), why.npos) << why;
  std::thread third([&] { EXPECT_EQ(ask(connected.caller, "3"), "c"); });
  Request one = kept.pop(), two = kept.pop();
  one.reply(bytes("a"));
  EXPECT_EQ(response_of(first), "a"); // and its slot is free
  kept.pop().reply(bytes("c"));
  third.join();
  two.reply(bytes("b"));
  EXPECT_EQ(response_of(second), "b");
}

TEST(Requests, FailInTheServersWords) {
  Running server({.handler_threads = 1}, [](Request &&request) {
    const std::string how = text(request.bytes());
    if (how == "fail")
      request.fail("no such key: \"x\"");
    else if (how == "nothing")
      request.fail("");
    else if (how == "throw")
      throw std::runtime_error("disk full (sda1): 0 left");
    else if (how == "throw a number")
      throw 42;
    else if (how == "reply, then throw") {
      request.reply(bytes("done"));
      throw std::runtime_error("too late");
    } else if (how == "move, then throw") {
      const Request moved(std::move(request));
      throw std::runtime_error("not of this one any more");
    }
  });
  Connected connected(server);
  for (const auto &[how, said] :
       std::map<std::string, std::string>{{"fail", "no such key: \"x\""},
                                          {"nothing", ""},
                                          {"throw", "disk full (sda1): 0 left"},
                                          {"throw a number", "an unknown exception"},
                                          {"move, then throw", not_answered},
                                          {"return", not_answered}}) {
    const RequestFailed failure = failure_of([&, &words = how] { ask(connected.caller, words); });
    EXPECT_EQ(failure.server_said(), said);
    EXPECT_EQ(failure.outcome(), Outcome::refused);
    EXPECT_NE(std::string(failure.what()).find("the server could not answer it"),
              std::string::npos);
    EXPECT_NE(std::string(failure.what()).find(said), std::string::npos);
  }
  EXPECT_EQ(ask(connected.caller, "reply, then throw"), "done");
}

TEST(Requests, OfAHandlerOfBytes) {
  Running server({}, [](std::span<const std::byte> request, std::span<std::byte> response) {
    if (request.empty())
      throw std::runtime_error("nothing to do");
    std::ranges::copy(request, response.begin());
    return request.size() == 5 ? 1000 : request.size();
  });
  Connected connected({.servers = {server.where()}, .slot_size = 128});
  EXPECT_EQ(ask(connected.caller, "word"), "word");
  EXPECT_EQ(failure_of([&] { ask(connected.caller, ""); }).server_said(), "nothing to do");
  EXPECT_EQ(answer_too_long([&] { ask(connected.caller, "wrong"); }),
            "RequestOptions::max_response too small: 1000 > 128 bytes");
}

TEST(Requests, ThatAreDroppedFail) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected(server);
  std::vector<Pending> pending;
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    pending.push_back(connected.caller.request_async(bytes("?"), patient()));
    requests.push_back(kept.pop());
  }
  requests[0] = std::move(requests[1]); // the first is dropped
  EXPECT_EQ(failure_of([&] { response_of(pending[0]); }).server_said(), not_answered);
  EXPECT_FALSE(pending[1].is_ready());
  EXPECT_TRUE(requests[1].is_answered()); // it is none any more
  requests[0].reply(bytes("second"));
  EXPECT_EQ(response_of(pending[1]), "second");
  requests.clear();
  EXPECT_EQ(failure_of([&] { response_of(pending[2]); }).server_said(), not_answered);
}

TEST(Requests, WantNoResponseIfTheyArePosted) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .slots = 16, .window = 4});
  for (int i = 0; i < 100; ++i) { // so that their slots, and the window, come back
    connected.caller.post(bytes("post"), {.limit = time_limit, .service = 3});
    Request posted = kept.pop();
    EXPECT_FALSE(posted.wants_response());
    EXPECT_EQ(posted.service(), 3);
    if (i % 3 == 0)
      posted.reply(bytes(std::string(5000, 'x'))); // nobody gets it, so it may be too long
    else if (i % 3 == 1)
      posted.fail("no");
  }
  Pending pending = connected.caller.request_async(bytes("?"), patient());
  Request request = kept.pop();
  EXPECT_TRUE(request.wants_response());
  request.reply(bytes("!"));
  EXPECT_EQ(response_of(pending), "!");
}

// Without a pool, one thread has all connections. A handler answers what came before, by its own
// connection or by another one.
TEST(Requests, AreAnsweredByTheHandlerOfAnother) {
  for (const uint32_t workers : {0, 1}) {
    std::map<std::string, Request> kept;
    Queue<std::string> names;
    Running server({.handler_threads = workers}, [&](Request &&request) {
      const std::string words = text(request.bytes());
      if (const auto its = kept.find(words.substr(1)); words.front() == '!' && its != kept.end()) {
        its->second.reply(bytes("for " + its->first));
        kept.erase(its);
        return request.reply(bytes("done"));
      }
      kept.emplace(words, std::move(request));
      names.push(words);
    });
    std::array<Connected, 2> both{Connected(server), Connected(server)};
    for (size_t from = 0; from < 2; ++from)
      for (size_t by = 0; by < 2; ++by) {
        Pending pending = both.at(from).caller.request_async(bytes("x"), patient());
        EXPECT_EQ(names.pop(), "x");
        EXPECT_EQ(ask(both.at(by).caller, "!x"), "done");
        EXPECT_EQ(response_of(pending), "for x");
      }
  }
}

} // namespace
} // namespace in_one_process

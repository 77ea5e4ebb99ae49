// SPDX-License-Identifier: MIT
// Requests that are answered by threads of the program's own, which neither their client nor their
// server waits for.
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

namespace in_one_process {
namespace {

// Threads of the program's own take requests from its own queue.
TEST(Requests, AreAnsweredByAnExecutor) {
  constexpr int callers = 3, each = 50, in_flight = 8;
  for (const uint32_t largest : {0, 500}) {
    Queue<std::optional<Request>> queue; // nothing: no more will come
    Running server({.handler_threads = 2},
                   [&](Request &&request) { queue.push(std::move(request)); });
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        while (std::optional<Request> request = queue.pop()) {
          request->reply(request->bytes());
        }
      });
    std::atomic<int> right = 0;
    {
      Connected connected({.servers = {server.where()}, .slots = 64, .largest_response = largest});
      std::vector<std::thread> asking;
      for (int thread = 0; thread < callers; ++thread)
        asking.emplace_back([&, thread] {
          for (int i = 0; i < each; ++i) {
            std::vector<Pending> pending;
            const auto words = [&](int number) {
              return std::string(static_cast<size_t>(thread * 40 + number), 'x') +
                     std::to_string(i);
            };
            for (int number = 0; number < in_flight; ++number)
              pending.push_back(connected.caller.request_async(bytes(words(number)), patient()));
            for (int number = 0; number < in_flight; ++number)
              right += response_of(pending[static_cast<size_t>(number)]) == words(number);
          }
        });
      for (std::thread &thread : asking)
        thread.join();
    }
    for (size_t i = 0; i < threads.size(); ++i)
      queue.push(std::nullopt);
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_EQ(right, callers * each * in_flight);
  }
}

TEST(Requests, OfAClientThatHasGoneAreNotBegun) {
  Queue<std::string> begun;
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  auto server =
      std::make_unique<Running>(ServerOptions{.handler_threads = 1}, [&](Request &&request) {
        begun.push(text(request.bytes()));
        opened.wait();
        request.reply(request.bytes());
      });
  {
    Connected connected(*server);
    std::vector<Pending> dropped;
    for (int i = 0; i < 20; ++i)
      dropped.push_back(connected.caller.request_async(bytes("gone"), patient()));
    EXPECT_EQ(begun.pop(), "gone");
  }
  server->server.stop();
  server->server.stop();
  server->wait_for_end(); // though a handler runs
  gate.set_value();
  server.reset();
  EXPECT_TRUE(begun.is_empty());
}

TEST(Requests, OutliveTheirConnection) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected other(server);
  std::vector<Request> requests;
  {
    Connected connected(server);
    for (int i = 0; i < 3; ++i) {
      Pending dropped = connected.caller.request_async(bytes("kept"), patient());
      requests.push_back(kept.pop());
    }
  }
  requests[0].reply(bytes("too late"));
  requests[1].fail("too late");
  Pending pending = other.caller.request_async(bytes("?"), patient());
  kept.pop().reply(bytes("!"));
  EXPECT_EQ(response_of(pending), "!");
  EXPECT_EQ(text(requests[2].bytes()), "kept");
  EXPECT_EQ(requests[2].client().host, address);
}

TEST(Requests, OutliveTheirServer) {
  for (const uint32_t workers : {0, 2}) {
    Kept kept;
    std::vector<Request> requests;
    std::weak_ptr<int> state;
    {
      auto server = std::make_unique<Running>(ServerOptions{.handler_threads = workers,
                                                            .new_client =
                                                                [&](const Client &) {
                                                                  const auto made =
                                                                      std::make_shared<int>(42);
                                                                  state = made;
                                                                  return made;
                                                                }},
                                              keep_in(kept));
      Connected connected({.servers = {server->where()}, .slots = 64, .largest_response = 1000});
      std::vector<Pending> pending;
      for (int i = 0; i < 4; ++i) {
        pending.push_back(connected.caller.request_async(bytes("kept"), patient()));
        requests.push_back(kept.pop());
      }
      server.reset();
      for (Pending &one : pending)
        EXPECT_EQ(failure_of([&] { response_of(one); }).outcome(), Outcome::lost);
    }
    EXPECT_EQ(*static_cast<int *>(requests[0].state()), 42);
    requests[0].reply(bytes("too late"));
    requests[1].fail("too late");
    std::ranges::fill(requests[2].response_space(), std::byte{1});
    requests[2].reply(requests[2].response_space().size());
    EXPECT_EQ(text(requests[3].bytes()), "kept");
    EXPECT_FALSE(state.expired());
    requests.clear();
    EXPECT_TRUE(state.expired());
  }
}

} // namespace
} // namespace in_one_process

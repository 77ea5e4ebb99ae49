// SPDX-License-Identifier: MIT
// A server's thread runs short handlers itself, and another thread takes its connections if one of
// them takes long after all.
#include "gate.hpp"
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace in_one_process {
namespace {

// Calls the handler often enough to make it a short one, if the machine is fast enough for that:
// then the thread with the connection runs it. test_whole_programs counts the server's wakes, and
// so sees whether it does.
void make_short(Caller &caller) {
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(ask(caller, "?"), "?");
}

TEST(StandingIn, AHandlerThatTakesLongAfterAllHoldsUpNobody) {
  Gate gate;
  Queue<bool> waiting;
  Running server({.workers = 2}, [&](Request &&request) {
    if (text(request.bytes()) == "wait") {
      waiting.push(true);
      gate.wait();
    }
    request.reply(request.bytes());
  });
  Connected connected(server), other(server);
  const OpenAtTheEnd at_the_end(gate);
  gate.close();
  make_short(other.caller);
  Pending waits = connected.caller.request_async(bytes("wait"), patient());
  waiting.pop();
  make_short(connected.caller);
  make_short(other.caller);
  const Connected late(server);
  EXPECT_FALSE(waits.is_ready());
  gate.open();
  EXPECT_EQ(response_of(waits), "wait");
}

// It is the destructor that waits for handlers.
TEST(StandingIn, AHandlerThatTakesLongDoesNotKeepRunFromReturning) {
  Gate gate;
  Queue<bool> waiting;
  auto server = std::make_unique<Running>(ServerOptions{.grace = std::chrono::milliseconds(0)},
                                          [&](Request &&request) {
                                            if (text(request.bytes()) == "wait") {
                                              waiting.push(true);
                                              gate.wait();
                                            }
                                            request.reply(request.bytes());
                                          });
  Connected connected(*server);
  const OpenAtTheEnd at_the_end(gate);
  make_short(connected.caller);
  Pending waits = connected.caller.request_async(bytes("wait"), patient());
  waiting.pop();
  server->server.stop();
  server->wait_for_end();
  EXPECT_EQ(failure_of([&] { response_of(waits); }).outcome(), Outcome::lost);
  gate.open();
  server.reset();
}

TEST(StandingIn, NoMoreHandlersRunThanThereAreWorkers) {
  for (const uint32_t workers : {1, 2}) {
    std::atomic<uint32_t> inside = 0, most = 0;
    Running server({.workers = workers}, [&](Request &&request) {
      const uint32_t now = ++inside;
      for (uint32_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);)
        ;
      std::this_thread::yield();
      --inside;
      request.reply(request.bytes());
    });
    Connected connected(server);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i)
          EXPECT_EQ(ask(connected.caller, "?"), "?");
      });
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_LE(most, workers);
  }
}

} // namespace
} // namespace in_one_process

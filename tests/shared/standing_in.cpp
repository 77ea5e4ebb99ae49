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

// The machine decides how soon a handler counts as short. A test waits for that, but not forever.
class Deadline {
public:
  bool is_over() const { return std::chrono::steady_clock::now() >= when_; }

private:
  const std::chrono::steady_clock::time_point when_ = std::chrono::steady_clock::now() + patience;
};

// Asks until the handler has run in one thread, without a wake, so many times in a row. @return
// that thread; none if it never does
std::thread::id ask_until_short(const Running &server, Caller &caller,
                                Queue<std::thread::id> &ids) {
  constexpr int enough = 20;
  int in_a_row = 0;
  std::thread::id last;
  for (const Deadline deadline; in_a_row < enough && !deadline.is_over();) {
    const uint64_t before = server.server.counts().wakes;
    EXPECT_EQ(ask(caller, "?"), "?");
    const std::thread::id now = ids.pop();
    in_a_row = server.server.counts().wakes == before && now == last ? in_a_row + 1 : 0;
    last = now;
  }
  return in_a_row == enough ? last : std::thread::id();
}

TEST(StandingIn, AShortHandlerRunsInTheThreadWithTheConnection) {
  Queue<std::thread::id> ids;
  Running server({.workers = 2}, [&](Request &&request) {
    ids.push(std::this_thread::get_id());
    request.reply(request.bytes());
  });
  Connected connected(server);
  EXPECT_NE(ask_until_short(server, connected.caller, ids), std::thread::id());
}

TEST(StandingIn, AHandlerThatTakesLongAfterAllHoldsUpNobody) {
  Gate gate;
  Queue<std::thread::id> ids, waiting;
  Running server({.workers = 2}, [&](Request &&request) {
    const bool waits = text(request.bytes()) == "wait";
    (waits ? waiting : ids).push(std::this_thread::get_id());
    if (waits)
      gate.wait();
    request.reply(request.bytes());
  });
  Connected connected(server), other(server);
  const OpenAtTheEnd at_the_end(gate);
  bool was_in_the_loop = false;
  for (const Deadline deadline; !was_in_the_loop && !deadline.is_over();) {
    gate.close();
    const std::thread::id in_the_loop = ask_until_short(server, other.caller, ids);
    Pending waits = connected.caller.request_async(bytes("wait"), patient());
    was_in_the_loop = waiting.pop() == in_the_loop;
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(ask(connected.caller, "?"), "?");
      EXPECT_EQ(ask(other.caller, "?"), "?");
    }
    const Connected late(server);
    EXPECT_FALSE(waits.is_ready());
    gate.open();
    EXPECT_EQ(response_of(waits), "wait");
    while (ids.try_pop())
      ;
  }
  EXPECT_TRUE(was_in_the_loop);
}

// It is the destructor that waits for handlers.
TEST(StandingIn, AHandlerThatTakesLongDoesNotKeepRunFromReturning) {
  Gate gate;
  Queue<std::thread::id> ids, waiting;
  auto server = std::make_unique<Running>(
      ServerOptions{.grace = std::chrono::milliseconds(0)}, [&](Request &&request) {
        const bool waits = text(request.bytes()) == "wait";
        (waits ? waiting : ids).push(std::this_thread::get_id());
        if (waits)
          gate.wait();
        request.reply(request.bytes());
      });
  Connected connected(*server);
  const OpenAtTheEnd at_the_end(gate);
  ask_until_short(*server, connected.caller, ids);
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

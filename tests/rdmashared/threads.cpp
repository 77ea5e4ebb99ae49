// SPDX-License-Identifier: MIT
// Several threads that have connections, on both sides.
#include "gate.hpp"
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <set>
#include <utility>

namespace in_one_process {
namespace {

constexpr std::chrono::hours much_grace(1); // longer than the test may take

// One server under several numbers: so a caller can choose the connection, and with it the threads.
std::vector<ServerAddress> times(uint32_t count, const Running &server) {
  return std::vector<ServerAddress>(count, server.where());
}

RequestOptions to(uint32_t server) {
  return {.server = server, .limit = time_limit};
}

// A user may have so many threads, in each round one more, until there are enough.
[[noreturn]] void make_senders_of_a_poor_user() {
  rdmacommon::check_errno(setuid(54'321), "setuid"); // root has no such limit
  bool has_failed = false;
  for (rlim_t threads = 1;; ++threads) {
    const rlimit limit{.rlim_cur = threads, .rlim_max = 100};
    rdmacommon::check_errno(setrlimit(RLIMIT_NPROC, &limit), "setrlimit");
    try {
      const Sender sender({.servers = {{.host = address}, {.host = address}}, .threads = 3});
      _exit(has_failed ? 0 : 1);
    } catch (const std::exception &) {
      has_failed = true;
    }
  }
}

TEST(ThreadsDeathTest, ThatCannotBeMadeAreAnError) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can become somebody else";
  EXPECT_EXIT(make_senders_of_a_poor_user(), testing::ExitedWithCode(0), "");
}

TEST(Threads, AnswerAllCallers) {
  for (const uint32_t count : {2, 3})
    for (const uint32_t workers : {0, 2}) {
      Running server({.threads = count, .handler_threads = workers},
                     [](Request &&request) { request.reply(request.bytes()); });
      Connected connected(
          {.servers = times(3, server), .largest_response = 5000, .threads = count});
      EXPECT_EQ(connected.sender.connections(), 3 * count);
      std::atomic<uint32_t> right = 0;
      std::vector<std::thread> threads;
      for (uint32_t thread = 0; thread < 6; ++thread)
        threads.emplace_back([&, thread] {
          for (uint32_t i = 0; i < 100; ++i) {
            const std::string words = std::to_string(thread) + "." + std::to_string(i);
            RequestOptions how = to((thread + i) % 3);
            how.max_response = i % 2 == 0 ? RequestOptions::any_length : 0;
            right += ask(connected.caller, words, how) == words;
          }
        });
      for (std::thread &thread : threads)
        thread.join();
      EXPECT_EQ(right, 600);
      EXPECT_GE(connected.sender.counts().messages, 600); // and pings
      EXPECT_GE(server.server.counts().messages, 600);
      EXPECT_EQ(connected.sender.counts().rnr + server.server.counts().rnr, 0);
    }
}

TEST(Threads, OfTheServerServeOneConnectionEach) {
  for (const uint32_t count : {1, 2, 3}) {
    Queue<std::thread::id> ids;
    Running server({.threads = count, .handler_threads = 0}, [&](Request &&request) {
      ids.push(std::this_thread::get_id());
      request.reply(request.bytes());
    });
    Connected connected({.servers = times(3, server)});
    std::set<std::thread::id> seen;
    for (int round = 0; round < 2; ++round)
      for (uint32_t lane = 0; lane < 3; ++lane) {
        ask(connected.caller, "?", to(lane));
        seen.insert(ids.pop());
      }
    EXPECT_EQ(seen.size(), count);
  }
}

TEST(Threads, OfTheServerDoNotWaitForEachOther) {
  Gate gate;
  Queue<bool> is_inside;
  Running server({.threads = 2, .handler_threads = 0}, [&](Request &&request) {
    if (text(request.bytes()) == "wait") {
      is_inside.push(true);
      gate.wait();
    }
    request.reply(request.bytes());
  });
  Connected connected({.servers = times(2, server)}); // the sender has one thread
  const OpenAtTheEnd at_the_end(gate);
  Pending waits = connected.caller.request_async(bytes("wait"), to(0));
  is_inside.pop();
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(ask(connected.caller, std::to_string(i), to(1)), std::to_string(i));
  EXPECT_FALSE(waits.is_ready());
  gate.open();
  EXPECT_EQ(response_of(waits), "wait");
}

TEST(Threads, TakeBackWhatADeadWorkerHad) {
  for (const uint32_t count : {2, 3})
    for (uint32_t lane = 0; lane < 3; ++lane) {
      Kept kept;
      Running server({.threads = count}, keep_in(kept));
      const std::string name = "dead." + std::to_string(getpid());
      Connected connected({.servers = times(3, server),
                           .slots = 8,
                           .area_slots = 4,
                           .threads = count,
                           .name = name});
      const pid_t worker = start_joined(name, "dies", lane);
      Request request = kept.pop();
      EXPECT_EQ(kill(worker, SIGKILL), 0);
      EXPECT_TRUE(WIFSIGNALED(status_of(worker)));
      request.reply(bytes("too late"));
      for (int i = 0; i < 12; ++i) { // more than the ring has room for
        Pending next = connected.caller.request_async(bytes("?"), to(lane));
        kept.pop().reply(bytes("!"));
        EXPECT_EQ(response_of(next), "!");
      }
    }
}

TEST(Threads, OfProcessesThatJoin) {
  Running server({.threads = 2}, [](Request &&request) { request.reply(request.bytes()); });
  const std::string name = "joins." + std::to_string(getpid());
  const Connected connected({.servers = times(14, server), .threads = 3, .name = name});
  std::vector<pid_t> processes;
  for (uint32_t lane = 0; lane < 14; ++lane)
    processes.push_back(start_joined(name, "?", lane));
  for (const pid_t process : processes)
    EXPECT_EQ(status_of(process), 0);
}

TEST(Threads, LetTheirClientsFinish) {
  for (const bool in_time : {true, false}) {
    Kept kept;
    Lines log;
    Running server({.threads = 3, .grace = much_grace, .log = log.log()}, keep_in(kept));
    Connected connected({.servers = times(3, server)});
    std::vector<Pending> pending;
    std::vector<Request> requests;
    for (uint32_t lane = 0; lane < 3; ++lane) {
      pending.push_back(connected.caller.request_async(bytes("?"), to(lane)));
      requests.push_back(kept.pop());
    }
    server.server.stop();
    log.with("closing: 3 clients may finish");
    for (size_t i = in_time ? 3 : 1; i-- > 0;) {
      EXPECT_TRUE(server.is_running());
      requests[i].reply(bytes("still"));
      EXPECT_EQ(response_of(pending[i]), "still");
    }
    if (!in_time)
      server.server.stop();
    server.wait_for_end();
    EXPECT_EQ(server.server.served(), 3);
    EXPECT_EQ(server.server.dropped(), 0);
    for (size_t i = 1; i < 3 && !in_time; ++i)
      EXPECT_EQ(failure_of([&] { response_of(pending[i]); }).outcome(), Outcome::lost);
  }
}

TEST(Threads, EndWithTheirLastClient) {
  Running server({.max_clients = 4, .exit_after = 4, .threads = 2},
                 [](Request &&request) { request.reply(request.bytes()); });
  for (uint32_t i = 0; i < 2; ++i) { // the second time, in the place of the first
    EXPECT_TRUE(server.is_running());
    Connected connected({.servers = times(2, server)});
    EXPECT_EQ(ask(connected.caller, "?", to(i)), "?");
  }
  server.wait_for_end();
  EXPECT_EQ(server.server.served(), 4);
}

TEST(Threads, ConnectAgainWhileOthersGoOn) {
  const auto echo = [](Request &&request) { request.reply(request.bytes()); };
  std::optional<Running> red(std::in_place, ServerOptions{.threads = 2}, echo);
  Running blue({.threads = 2}, echo);
  Connected connected({.servers = {red->where(), blue.where()},
                       .threads = 2,
                       .retry_delay = std::chrono::milliseconds(10)});
  std::atomic<bool> is_over = false;
  std::atomic<uint32_t> wrong = 0, right = 0;
  std::thread others([&] {
    while (!is_over)
      (ask(connected.caller, "blue", to(1)) == "blue" ? right : wrong) += 1;
  });
  const uint16_t port = red->server.port();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(connected.caller, "red", to(0)), "red");
    red.reset();
    Outcome outcome;
    do // the sender may not know yet when it sends the first
      outcome = failure_of([&] { ask(connected.caller, "red", to(0)); }).outcome();
    while (outcome == Outcome::lost);
    EXPECT_EQ(outcome, Outcome::not_sent);
    red.emplace(ServerOptions{.threads = 2}, echo, port);
    connected.sender.wait_connected(time_limit);
  }
  is_over = true;
  others.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
}

} // namespace
} // namespace in_one_process

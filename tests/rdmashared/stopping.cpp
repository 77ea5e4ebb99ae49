// SPDX-License-Identifier: MIT
// Tests how a server ends.
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <memory>

namespace in_one_process {
namespace {

constexpr std::chrono::hours much_grace(1); // longer than the test may take
const RequestHandler echo = [](Request &&request) { request.reply(request.bytes()); };

TEST(Stopping, BeforeRun) {
  Server server({.host = address, .port = 0}, echo);
  server.stop();
  Queue<bool> ended;
  std::thread thread([&] {
    server.run();
    ended.push(true);
  });
  EXPECT_TRUE(ended.pop());
  thread.join();
}

TEST(Stopping, FromAnotherThread) {
  for (const Waiting waiting : {Waiting::events, Waiting::adaptive, Waiting::poll}) {
    Running idle({.waiting = waiting, .grace = much_grace}, echo),
        busy({.waiting = waiting, .grace = much_grace}, echo);
    idle.server.stop();
    idle.wait_for_end();
    Connected connected(busy);
    EXPECT_EQ(ask(connected.caller, "?"), "?");
    busy.server.stop();
    busy.wait_for_end(); // its client has gone by itself
    EXPECT_EQ(busy.server.served(), 1);
    EXPECT_EQ(failure_of([&] { ask(connected.caller, "?"); }).outcome(), Outcome::not_sent);
  }
}

TEST(Stopping, FromAHandler) {
  for (const uint32_t workers : {0, 1}) {
    Server *to_stop = nullptr;
    Running running({.handler_threads = workers, .grace = much_grace}, [&](Request &&request) {
      to_stop->stop();
      request.reply(bytes("good bye"));
    });
    to_stop = &running.server;
    Connected connected(running);
    EXPECT_EQ(ask(connected.caller, "?"), "good bye");
    running.wait_for_end();
  }
}

Server *of_the_handler = nullptr;
void on_signal(int) {
  of_the_handler->stop();
}

// In the thread that runs the server, which may be asleep; and in another one.
TEST(Stopping, FromASignalHandler) {
  for (const bool in_its_thread : {true, false}) {
    Running running({.grace = much_grace}, echo);
    Connected connected(running);
    EXPECT_EQ(ask(connected.caller, "?"), "?");
    of_the_handler = &running.server;
    std::signal(SIGUSR1, on_signal);
    EXPECT_EQ(pthread_kill(in_its_thread ? running.thread() : pthread_self(), SIGUSR1), 0);
    running.wait_for_end();
    std::signal(SIGUSR1, SIG_DFL);
    EXPECT_EQ(running.server.served(), 1);
  }
}

TEST(Stopping, LetsClientsFinish) {
  Kept kept;
  Lines log;
  Running running({.grace = much_grace, .log = log.log()}, keep_in(kept));
  Connected connected(running);
  Pending pending = connected.caller.request_async(bytes("?"), patient());
  Request request = kept.pop();
  running.server.stop();
  log.with("closing: 1 clients may finish");
  EXPECT_TRUE(running.is_running());
  request.reply(bytes("still"));
  EXPECT_EQ(response_of(pending), "still");
  running.wait_for_end();
}

TEST(Stopping, TwiceEndsTheGrace) {
  Kept kept;
  Lines log;
  Running running({.grace = much_grace, .log = log.log()}, keep_in(kept));
  Connected connected(running);
  Pending pending = connected.caller.request_async(bytes("?"), patient());
  const Request request = kept.pop();
  running.server.stop();
  log.with("closing: 1 clients may finish");
  EXPECT_TRUE(running.is_running());
  running.server.stop();
  running.wait_for_end();
  EXPECT_EQ(failure_of([&] { response_of(pending); }).outcome(), Outcome::lost);
}

TEST(Stopping, TheGraceEnds) {
  Kept kept;
  Running running({.grace = std::chrono::milliseconds(1)}, keep_in(kept));
  Connected connected(running);
  Pending pending = connected.caller.request_async(bytes("?"), patient());
  const Request request = kept.pop();
  running.server.stop();
  running.wait_for_end();
  EXPECT_EQ(failure_of([&] { response_of(pending); }).outcome(), Outcome::lost);
}

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals)
    sigaddset(&set, signal);
  return set;
}

bool is_blocked(int signal) {
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return sigismember(&now, signal) == 1;
}

// serve_until_signal() in a thread that takes these signals before and after; all others block
// them.
class UntilSignal {
public:
  UntilSignal(const ServerOptions &options, const RequestHandler &handler)
      : server_(options, handler), thread_([this] {
          const sigset_t ends = set_of({SIGINT, SIGTERM});
          pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
          serve_until_signal(server_);
          EXPECT_FALSE(is_blocked(SIGTERM));
          EXPECT_FALSE(is_blocked(SIGINT));
          ended_.push(true);
        }) {}
  ~UntilSignal() {
    server_.stop();
    server_.stop();
    thread_.join();
  }
  UntilSignal(const UntilSignal &) = delete;
  UntilSignal &operator=(const UntilSignal &) = delete;

  ServerAddress where() const { return {.host = address, .port = server_.port()}; }
  Server &server() { return server_; }
  bool is_running() { return ended_.is_empty(); }
  void wait_for_end() { ended_.pop(); }

private:
  Server server_;
  Queue<bool> ended_;
  std::thread thread_;
};

ServerOptions here(ServerOptions options = {}) {
  options.host = address;
  options.port = 0;
  options.grace = much_grace;
  return options;
}

TEST(UntilSignal, EitherSignalIsStop) {
  for (const int signal : {SIGTERM, SIGINT}) {
    UntilSignal serving(here(), echo);
    Connected connected({.servers = {serving.where()}});
    EXPECT_EQ(ask(connected.caller, "?"), "?"); // so it is running
    EXPECT_EQ(kill(getpid(), signal), 0);
    serving.wait_for_end();
    EXPECT_EQ(serving.server().served(), 1);
    sigset_t left;
    sigpending(&left);
    EXPECT_FALSE(sigismember(&left, signal));
  }
}

TEST(UntilSignal, TwiceEndsTheGrace) {
  Kept kept;
  Lines log;
  ServerOptions options = here();
  options.log = log.log();
  UntilSignal serving(options, keep_in(kept));
  Connected connected({.servers = {serving.where()}});
  Pending pending = connected.caller.request_async(bytes("?"), patient());
  const Request request = kept.pop();
  EXPECT_EQ(kill(getpid(), SIGTERM), 0);
  log.with("closing: 1 clients may finish");
  EXPECT_TRUE(serving.is_running());
  EXPECT_EQ(kill(getpid(), SIGINT), 0);
  serving.wait_for_end();
  EXPECT_EQ(failure_of([&] { response_of(pending); }).outcome(), Outcome::lost);
}

TEST(UntilSignal, OrUntilStopOrUntilItsClientsHaveGone) {
  {
    UntilSignal serving(here(), echo);
    Connected connected({.servers = {serving.where()}});
    EXPECT_EQ(ask(connected.caller, "?"), "?");
    serving.server().stop();
    serving.wait_for_end();
  }
  UntilSignal serving(here({.exit_after = 1}), echo);
  {
    Connected connected({.servers = {serving.where()}});
    EXPECT_EQ(ask(connected.caller, "?"), "?");
  }
  serving.wait_for_end();
}

} // namespace
} // namespace in_one_process

// SPDX-License-Identifier: MIT
// Two servers and two senders in one process, and processes that join.
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

namespace {
std::atomic<bool> has_no_more_watches = false;
} // namespace

// For the libraries, too, in place of libc's. Each user has a limit (epoll(7), max_user_watches).
int epoll_ctl(int epoll, int operation, int fd, epoll_event *event) noexcept {
  if (has_no_more_watches && operation == EPOLL_CTL_ADD && (event->events & EPOLLET) != 0) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}

namespace in_one_process {
namespace {

// Says its name, and the request.
RequestHandler named(const std::string &name) {
  return [name](Request &&request) { request.reply(bytes(name + " " + text(request.bytes()))); };
}

std::string name_here(const std::string &of) {
  return of + "." + std::to_string(getpid());
}

TEST(Several, CallersReachTheirOwnServers) {
  Running red({.handler_threads = 2}, named("red")), blue({.handler_threads = 0}, named("blue"));
  Connected to_red(red), to_blue(blue);
  std::vector<std::thread> threads;
  std::atomic<uint32_t> right = 0;
  for (auto &[caller, name] :
       {std::pair(&to_red.caller, "red "), std::pair(&to_blue.caller, "blue ")})
    for (int thread = 0; thread < 2; ++thread)
      threads.emplace_back([&right, its = caller, who = std::string(name)] {
        for (int i = 0; i < 100; ++i)
          right += ask(*its, std::to_string(i)) == who + std::to_string(i);
      });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(right, 400);
  Caller moved(std::move(to_red.caller));
  EXPECT_EQ(ask(moved, "!"), "red !");
  EXPECT_EQ(answered(red.server), 201);
  EXPECT_EQ(answered(blue.server), 200);
  EXPECT_EQ(answered(to_red.sender), 201);
  // Nobody can listen at a port that another server has, or at another host's address.
  EXPECT_NE(error_of([&] {
              const Server another({.host = address, .port = red.server.port()}, named("another"));
            }),
            "no error");
  EXPECT_NE(error_of([&] {
              const Server elsewhere({.host = "192.0.2.1", .port = 0}, named("elsewhere"));
            }),
            "no error");
}

TEST(Several, AskChoosesOneOfTwoServers) {
  Running red({}, named("red")), blue({}, named("blue"));
  Connected to_both({.servers = {red.where(), blue.where()}, .connections = 2});
  EXPECT_EQ(to_both.sender.connections(), 4);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(ask(to_both.caller, "?", {.server = 0, .limit = time_limit}), "red ?");
    EXPECT_EQ(ask(to_both.caller, "?", {.server = 1, .limit = time_limit}), "blue ?");
  }
  std::multiset<std::string> names;
  for (int i = 0; i < 8; ++i)
    names.insert(ask(to_both.caller, "?"));
  EXPECT_EQ(names.count("red ?"), 4);
  EXPECT_EQ(names.count("blue ?"), 4);
  try {
    ask(to_both.caller, "?", {.server = 2, .limit = time_limit});
    ADD_FAILURE() << "there is no such server";
  } catch (const rdmacommon::Error &error) {
    EXPECT_NE(std::string(error.what()).find("there is no server 2"), std::string::npos);
  }
}

TEST(Several, TheOtherServerStays) {
  Running red({}, named("red")), blue({}, named("blue"));
  Connected to_both({.servers = {red.where(), blue.where()}});
  red.server.stop();
  red.wait_for_end();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(ask(to_both.caller, "?"), "blue ?");
  const RequestFailed failure =
      failure_of([&] { ask(to_both.caller, "?", {.server = 0, .limit = time_limit}); });
  EXPECT_EQ(failure.outcome(), Outcome::not_sent);
  EXPECT_EQ(failure.server_said(), "");
}

TEST(Several, ProcessesJoin) {
  Kept kept;
  Running server({}, keep_in(kept));
  const std::string name = name_here("join");
  Connected here({.servers = {server.where()}, .name = name});
  const pid_t first = start_joined(name, "first"), second = start_joined(name, "second");
  Pending own = here.caller.request_async(bytes("own"), {.limit = time_limit, .service = 7});
  std::map<std::string, Request> by_text; // none is answered before all have come
  for (int i = 0; i < 3; ++i) {
    Request request = kept.pop();
    std::string words = text(request.bytes());
    by_text.emplace(std::move(words), std::move(request));
  }
  std::set<uint16_t> workers;
  for (const auto &[words, request] : by_text)
    workers.insert(request.worker());
  EXPECT_EQ(workers.size(), 3);
  EXPECT_EQ(by_text.at("own").service(), 7);
  EXPECT_EQ(by_text.at("first").service(), 0);
  for (auto &[words, request] : by_text)
    request.reply(bytes(words));
  EXPECT_EQ(status_of(first), 0);
  EXPECT_EQ(status_of(second), 0);
  EXPECT_EQ(response_of(own), "own");
}

TEST(Several, NamesAreOfOneSender) {
  Running server({}, named("red"));
  const std::string name = name_here("one");
  const SenderOptions options{.servers = {server.where()}, .name = name};
  EXPECT_NE(error_of([&] { Caller::join(name); }), "no error");
  {
    Connected first(options);
    EXPECT_NE(error_of([&] { const Sender second(options); }), "no error");
    EXPECT_EQ(ask(first.caller, "?"), "red ?");
  }
  Connected third(options); // the name is free again
  EXPECT_EQ(ask(third.caller, "?"), "red ?");
}

// Catches what the library's threads write to this process's output, while this object lives.
class Output {
public:
  Output() {
    std::fflush(nullptr);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
      dup2(file_.get(), fd);
  }
  ~Output() {
    std::fflush(nullptr);
    dup2(out_.get(), STDOUT_FILENO);
    dup2(err_.get(), STDERR_FILENO);
  }
  off_t length() const {
    std::fflush(nullptr);
    return lseek(file_.get(), 0, SEEK_END);
  }

private:
  rdmacommon::File out_{dup(STDOUT_FILENO)}, err_{dup(STDERR_FILENO)},
      file_{memfd_create("output", MFD_CLOEXEC)};
};

// A client is rejected, a request fails, a server stops, another sender finds nobody. @return what
// wait_connected() says
std::string have_much_to_say(const Log &of_server, const Log &of_sender) {
  std::atomic<bool> has_rejected = false;
  auto running = std::make_unique<Running>(
      ServerOptions{.new_client = [&](const Client &) -> std::shared_ptr<void> {
                      if (!has_rejected.exchange(true))
                        throw std::runtime_error("come again");
                      return nullptr;
                    },
                    .log = of_server},
      [](Request &&) {});
  const ServerAddress where = running->where();
  Connected connected({.servers = {where}, .log = of_sender});
  failure_of([&] { ask(connected.caller, "?"); });
  running->server.stop();
  running->wait_for_end();
  running.reset();
  return error_of([&] {
    Sender sender({.servers = {where}, .log = of_sender});
    sender.wait_connected(std::chrono::seconds(1));
  });
}

TEST(Several, TheLibraryIsSilent) {
  off_t length = -1;
  std::string why;
  {
    const Output output;
    why = have_much_to_say({}, {});
    length = output.length();
    EXPECT_EQ(write(STDERR_FILENO, "x", 1), 1);
    EXPECT_EQ(output.length(), length + 1) << "else nothing is seen here";
  }
  EXPECT_EQ(length, 0);
  EXPECT_NE(why.find("0 of 1 are up"), why.npos) << why;
}

TEST(Several, TheSenderSaysWhyNothingComesUp) {
  const ServerAddress where = Running({}, [](Request &&) {}).where(); // nobody listens there now
  const Sender sender({.servers = {where}});
  while (sender.why().find("REJECTED") == std::string::npos) // else the time limit ends the test
    std::this_thread::yield();
}

// One server rejects its client, which then waits. Only after that does the other one accept.
TEST(Several, TheReasonIsNotThatOfAConnectionThatIsUp) {
  Queue<bool> may_accept;
  Running never({.new_client = [](const Client &) -> std::shared_ptr<void> {
                  throw std::runtime_error("never");
                }},
                named("never"));
  Running later({.new_client = [&](const Client &) -> std::shared_ptr<void> {
                  may_accept.pop();
                  return nullptr;
                }},
                named("later"));
  Sender sender({.servers = {never.where(), later.where()},
                 .connect_within = time_limit,
                 .retry_delay = std::chrono::hours(1),
                 .max_retry_delay = std::chrono::hours(1)});
  while (sender.why().find("the server rejects") == std::string::npos)
    std::this_thread::yield();
  may_accept.push(true);
  EXPECT_TRUE(sender.caller().wait_connected(time_limit, 1));
  while (sender.metrics().value("lane_up", // its thread has told what it knows
                                R"(thread="0",lane="1",server=")" + address + ":" +
                                    std::to_string(later.where().port) + '"') == 0)
    std::this_thread::yield();
  EXPECT_NE(sender.why().find("the server rejects"), std::string::npos) << sender.why();
}

TEST(Several, NoReasonIsGivenIfAllAreUp) {
  Running server({}, named("red"));
  EXPECT_EQ(Connected(server).sender.why(), "");
}

TEST(Several, AProcessThatCannotBeWatchedDisturbsNobody) {
  Running server({}, named("red"));
  Lines log;
  Connected connected({.servers = {server.where()}, .log = log.log()});
  EXPECT_EQ(ask(connected.caller, "?"), "red ?"); // it has joined
  has_no_more_watches = true;
  Caller unwatched = connected.sender.caller();
  log.with("a process cannot join: epoll_ctl: ");
  has_no_more_watches = false;
  EXPECT_FALSE(unwatched.call(bytes("?"), {.limit = std::chrono::milliseconds(1)}));
  EXPECT_EQ(ask(connected.caller, "?"), "red ?");
  Caller next = connected.sender.caller();
  EXPECT_EQ(ask(next, "?"), "red ?");
}

TEST(Several, TheLogGetsLines) {
  Lines of_server, of_sender;
  have_much_to_say(of_server.log(), of_sender.log());
  of_server.with("a client could not be accepted: come again");
  of_server.with("closing: 1 clients may finish");
  of_sender.with("the connection to " + address + ": ");
}

} // namespace
} // namespace in_one_process

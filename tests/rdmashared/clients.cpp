// SPDX-License-Identifier: MIT
// Tests what a server knows of its clients, and what a program keeps for each.
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <set>
#include <stdexcept>

namespace in_one_process {
namespace {

using std::chrono::milliseconds;

// The state of a client: how many requests it has had. Says when it goes.
struct Account {
  Account(const Client &client, Queue<uint64_t> &its_end)
      : whose(client.connection), end(its_end) {}
  ~Account() { end.push(whose); }
  Account(const Account &) = delete;
  Account &operator=(const Account &) = delete;

  const uint64_t whose;
  Queue<uint64_t> &end;
  std::atomic<uint32_t> requests = 0;
};

std::string describe(const Request &request) {
  return request.client().host + " " + std::to_string(request.client().connection);
}

TEST(Clients, HaveAHostAndANumber) {
  Running server({}, [](Request &&request) { request.reply(bytes(describe(request))); });
  Connected first(server), second(server);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ask(first.caller, "?"), address + " 1");
    EXPECT_EQ(ask(second.caller, "?"), address + " 2");
  }
  Connected third({.servers = {server.where(), server.where()}}); // they take turns
  EXPECT_EQ((std::set{ask(third.caller, "?"), ask(third.caller, "?")}),
            (std::set{address + " 3", address + " 4"}));
}

TEST(Clients, WithoutAStateHaveNone) {
  Running server({}, [](Request &&request) {
    request.reply(bytes(request.state() == nullptr ? "none" : "one"));
  });
  Connected connected(server);
  EXPECT_EQ(ask(connected.caller, "?"), "none");
}

TEST(Clients, HaveAStateUntilTheyGo) {
  Queue<uint64_t> made, gone;
  Running server({.handler_threads = 2,
                  .new_client =
                      [&](const Client &client) {
                        made.push(client.connection);
                        EXPECT_EQ(client.host, address);
                        return std::make_shared<Account>(client, gone);
                      }},
                 [](Request &&request) {
                   auto &account = *static_cast<Account *>(request.state());
                   EXPECT_EQ(account.whose, request.client().connection);
                   request.reply(bytes(std::to_string(++account.requests)));
                 });
  Connected first(server);
  EXPECT_EQ(made.pop(), 1);
  {
    Connected second(server);
    EXPECT_EQ(made.pop(), 2);
    EXPECT_EQ(ask(first.caller, "?"), "1");
    EXPECT_EQ(ask(first.caller, "?"), "2");
    EXPECT_EQ(ask(second.caller, "?"), "1");
    EXPECT_TRUE(gone.is_empty());
  }
  EXPECT_EQ(gone.pop(), 2);
  EXPECT_EQ(ask(first.caller, "?"), "3"); // the other one's is as it was
  EXPECT_TRUE(made.is_empty());           // once for each
  EXPECT_TRUE(gone.is_empty());
}

TEST(Clients, HaveAStateUntilTheirLastRequestIsAnswered) {
  Queue<uint64_t> gone;
  Kept kept;
  auto server =
      std::make_unique<Running>(ServerOptions{.exit_after = 1,
                                              .new_client =
                                                  [&](const Client &client) {
                                                    return std::make_shared<Account>(client, gone);
                                                  }},
                                keep_in(kept));
  std::optional<Request> request;
  {
    Connected connected(*server);
    Pending dropped = connected.caller.request_async(bytes("?"), patient());
    request.emplace(kept.pop());
  }
  server->wait_for_end(); // the client has come and gone
  server.reset();
  EXPECT_TRUE(gone.is_empty());
  EXPECT_EQ(static_cast<Account *>(request->state())->whose, 1);
  request->reply(bytes("too late"));
  EXPECT_EQ(gone.try_pop(), 1);
}

TEST(Clients, CanBeRejected) {
  Lines of_server, of_sender;
  std::atomic<uint32_t> calls = 0;
  Running server({.half_open = 1, // a client that was rejected does not count
                  .new_client = [&](const Client &) -> std::shared_ptr<void> {
                    switch (calls++) {
                    case 0:
                      throw std::runtime_error("it is on no list");
                    case 1:
                      throw 42;
                    default:
                      return nullptr;
                    }
                  },
                  .log = of_server.log()},
                 [](Request &&request) { request.reply(bytes(describe(request))); });
  Connected connected({.servers = {server.where()}, .log = of_sender.log()});
  EXPECT_EQ(calls, 3); // it has tried again, and that is a new client
  of_server.with("a client could not be accepted: it is on no list");
  of_server.with("a client could not be accepted: an unknown exception");
  of_sender.with("the server rejects: it cannot take this client; its log says why");
  EXPECT_EQ(ask(connected.caller, "?"), address + " 3");
  EXPECT_EQ(server.server.rejected(), 2);
  EXPECT_EQ(server.server.dropped(), 0);
}

TEST(Clients, AreWaitedForByManyThreads) {
  std::promise<void> gate;
  Running server({.new_client = [&](const Client &) -> std::shared_ptr<void> {
                   gate.get_future().wait();
                   return nullptr;
                 }},
                 [](Request &&) {});
  Sender sender({.servers = {server.where()}, .connect_within = time_limit});
  Queue<bool> begun, ended;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      begun.push(true);
      sender.wait_connected(std::chrono::hours(1));
      ended.push(true);
    });
  for (size_t i = 0; i < threads.size(); ++i)
    begun.pop();
  gate.set_value();
  for (size_t i = 0; i < threads.size(); ++i)
    ended.pop();
  for (std::thread &thread : threads)
    thread.join();
}

TEST(Clients, MayWaitWithoutALimit) {
  constexpr auto no_limit = std::chrono::milliseconds::max();
  Running server({}, [](Request &&request) { request.reply(request.bytes()); });
  Sender sender({.servers = {server.where()}});
  sender.wait_connected(no_limit);
  Caller caller = sender.caller();
  Pending answer = caller.request_async(bytes("?"), {.limit = no_limit});
  EXPECT_TRUE(answer.wait(no_limit).has_value());
}

TEST(Clients, AreCounted) {
  Lines log;
  Running server({.max_clients = 1, .exit_after = 2, .log = log.log()},
                 [](Request &&request) { request.reply(request.bytes()); });
  {
    Connected first(server);
    EXPECT_EQ(ask(first.caller, "?"), "?");
    Sender second({.servers = {server.where()}, .retry_delay = std::chrono::seconds(600)});
    const std::string why = error_of([&] { second.wait_connected(std::chrono::milliseconds(1)); });
    EXPECT_NE(why.find("0 of 1 are up"), why.npos) << why;
  }
  Connected third(server);
  EXPECT_EQ(ask(third.caller, "!"), "!");
  EXPECT_TRUE(server.is_running());
  EXPECT_EQ(server.server.served(), 1);
}

// Each is said before a thread, a socket or memory is made.
TEST(Options, ThatAreWrongAreErrorsAtOnce) {
  const auto nobody = [](Request &&) {};
  for (const ServerOptions &options :
       {ServerOptions{.max_clients = 0}, ServerOptions{.window = 0}, ServerOptions{.group = 0},
        ServerOptions{.memory = 0}, ServerOptions{.memory = UINT64_MAX},
        ServerOptions{.total_memory = 0}, ServerOptions{.total_memory = UINT64_MAX},
        ServerOptions{.group = 256}, ServerOptions{.threads = 0}, ServerOptions{.half_open = 0},
        ServerOptions{.connect_within = milliseconds(0)},
        ServerOptions{.connect_within = milliseconds::max()}})
    EXPECT_EQ(error_of([&] { const Server server(options, nobody); }).find("ServerOptions"), 0);
  for (const std::string &why : {error_of([] { const Server server({}, RequestHandler()); }),
                                 error_of([] { const Server server({}, Handler()); })})
    EXPECT_NE(why.find("its handler is empty"), why.npos) << why;
  const std::vector<ServerAddress> one{{.host = address}};
  for (const SenderOptions &options :
       {SenderOptions{},
        SenderOptions{.servers = one, .connections = 0},
        SenderOptions{.servers = one, .connections = 256},
        SenderOptions{.servers = one, .area_slots = 0},
        SenderOptions{.servers = one, .slots = 0},
        SenderOptions{.servers = one, .slots = 7},
        SenderOptions{.servers = one, .slots = 1 << 25},
        SenderOptions{.servers = one, .slot_size = 0},
        SenderOptions{.servers = one, .slot_size = 100},
        SenderOptions{.servers = one, .slot_size = 2 << 20},
        SenderOptions{.servers = one, .window = 0},
        SenderOptions{.servers = one, .largest_response = (1 << 26) + 1},
        SenderOptions{.servers = one, .group = 0},
        SenderOptions{.servers = one, .group = 256},
        SenderOptions{.servers = one, .threads = 0},
        SenderOptions{.servers = one, .connect_within = milliseconds(0)},
        SenderOptions{.servers = one, .connect_within = milliseconds::max()},
        SenderOptions{.servers = one, .retry_delay = milliseconds(-1)},
        SenderOptions{.servers = one, .retry_delay = milliseconds::max()},
        SenderOptions{.servers = one, .max_retry_delay = milliseconds(-1)},
        SenderOptions{.servers = one, .peer_timeout = milliseconds(499)}})
    EXPECT_EQ(error_of([&] { const Sender sender(options); }).find("SenderOptions"), 0);
  EXPECT_EQ(error_of([&] {
              const Sender sender({.servers = one, .group = 256});
            }).find("SenderOptions::group: it is 256, and must be 1 to 255"),
            0);
  EXPECT_EQ(error_of([&] {
              const Sender sender({.servers = one, .retry_delay = milliseconds(-1)});
            }).find("SenderOptions::retry_delay: it is -1, and must be 0 to 86400000"),
            0);
}

} // namespace
} // namespace in_one_process

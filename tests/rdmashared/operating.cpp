// SPDX-License-Identifier: MIT
// Tests what an operator needs: order of services, health, limits for strangers, and figures.
#include "gate.hpp"
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace in_one_process {
namespace {

using std::chrono::milliseconds;

TEST(Services, UrgentOnesGoFirst) {
  Queue<std::string> begun;
  std::promise<void> gate;
  Running server({.handler_threads = 1, .inline_services = 2, .urgent_services = 4},
                 [&](Request &&request) {
                   const std::string words = text(request.bytes());
                   begun.push(words);
                   if (words == "blocks")
                     gate.get_future().wait();
                   request.reply(0);
                 });
  Connected connected(server);
  Caller &caller = connected.caller;
  std::vector<Pending> pending;
  pending.push_back(caller.request_async(bytes("blocks"), patient()));
  EXPECT_EQ(begun.pop(), "blocks");
  // The server takes messages in order, and answers an inline one before the pool goes on.
  const RequestOptions at_once{.limit = time_limit, .service = 1};
  for (const char *words : {"first", "second"})
    pending.push_back(caller.request_async(bytes(words), patient()));
  EXPECT_TRUE(caller.call(bytes("inline"), at_once));
  pending.push_back(caller.request_async(bytes("urgent"), {.limit = time_limit, .service = 2}));
  EXPECT_TRUE(caller.call(bytes("inline"), at_once));
  gate.set_value();
  for (Pending &each : pending)
    EXPECT_TRUE(each.take());
  for (const char *words : {"inline", "inline", "urgent", "first", "second"})
    EXPECT_EQ(begun.pop(), words);
}

TEST(Services, HandlersKnowHowLongTheyHaveLeft) {
  Queue<milliseconds> left;
  Running server({}, [&](Request &&request) {
    left.push(request.left());
    request.reply(0);
  });
  Connected connected(server);
  EXPECT_TRUE(connected.caller.call(bytes("?"), {.limit = std::chrono::hours(1)}));
  const milliseconds of_an_hour = left.pop();
  EXPECT_GT(of_an_hour, std::chrono::minutes(50));
  EXPECT_LE(of_an_hour, std::chrono::hours(1));
}

TEST(Services, HealthIsAnsweredBesideABusyPool) {
  Kept kept;
  std::promise<void> gate;
  Running server({.handler_threads = 1, .health_service = uint8_t{9}, .grace = time_limit},
                 [&](Request &&request) {
                   kept.push(std::move(request));
                   gate.get_future().wait();
                 });
  Connected connected(server);
  Pending blocks = connected.caller.request_async(bytes("?"), patient());
  Request blocked = kept.pop();
  const RequestOptions health{.limit = time_limit, .service = 9};
  EXPECT_EQ(text(connected.caller.call(bytes(""), health).bytes), "serving");
  gate.set_value();
  blocked.reply(0);
  EXPECT_TRUE(blocks.take());
}

TEST(Clients, AreKnownByTheirSecret) {
  Queue<uint64_t> secrets;
  Running server({.new_client = [&](const Client &client) -> std::shared_ptr<void> {
                   secrets.push(client.secret);
                   if (client.secret != 42)
                     throw std::runtime_error("a stranger");
                   return nullptr;
                 }},
                 [](Request &&request) { request.reply(0); });
  const Sender stranger({.servers = {server.where()}, .secret = 41});
  EXPECT_EQ(secrets.pop(), 41);
  Connected friendly({.servers = {server.where()}, .secret = 42});
  EXPECT_TRUE(friendly.caller.call(bytes("?"), patient()));
  EXPECT_EQ(stranger.metrics().value("lane_up", R"(thread="0",lane="0",server=")" + address + ':' +
                                                    std::to_string(server.server.port()) + '"'),
            0);
}

// The gate holds the first client's opening, so the connections of its host stay half open.
TEST(Clients, OfOneHostMayNotAllBeHalfOpen) {
  std::promise<void> gate;
  Queue<bool> opening;
  Running server({.half_open = 1,
                  .new_client = [&, opened = gate.get_future().share()](
                                    const Client &) -> std::shared_ptr<void> {
                    opening.push(true);
                    opened.wait();
                    return nullptr;
                  }},
                 [](Request &&request) { request.reply(0); });
  Sender first({.servers = {server.where()}, .connect_within = time_limit});
  opening.pop();
  Lines log;
  Sender second({.servers = {server.where()}, .log = log.log()});
  log.with("the server rejects: it has as many connections as it takes");
  gate.set_value();
  first.wait_connected(time_limit);
  second.wait_connected(time_limit); // it has tried again
}

// The second server's end makes the sender log a line, in the thread that has the connections. Then
// the first server answers so much that it can send no message any more. But it must still send
// something that the client's host acknowledges, or it would not notice when that dies.
// @param at_most how many messages the server can send to a client that takes none
void expect_still_asked(uint32_t slots, size_t count, uint64_t at_most) {
  Kept kept;
  Running server({.group = 1}, keep_in(kept));
  std::optional<Running> other(std::in_place, ServerOptions{}, [](Request &&) {});
  Gate gate;
  Queue<bool> is_frozen;
  Connected connected({.servers = {server.where(), other->where()},
                       .slots = slots,
                       .log = [&](Level level, std::string_view) {
                         if (level != Level::warning)
                           return;
                         is_frozen.push(true);
                         gate.wait();
                       }});
  const OpenAtTheEnd at_the_end(gate);
  std::vector<Pending> pending;
  std::vector<Request> requests;
  for (size_t i = 0; i < count; ++i) {
    pending.push_back(
        connected.caller.request_async(bytes("?"), {.server = 0, .limit = time_limit}));
    requests.push_back(kept.pop());
  }
  other.reset();
  is_frozen.pop();
  const uint64_t before = server.server.counts().messages;
  for (Request &each : requests)
    each.reply(bytes("!"));
  // The thread that asks sends the answers, too. So when it has asked twice and sent no message, it
  // can send none. A post more may be that of the last message, which is counted before it.
  Counts last = server.server.counts(), now = last;
  const auto end = std::chrono::steady_clock::now() + time_limit;
  while (now.posts < last.posts + 3 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    now = server.server.counts();
    if (now.messages != last.messages)
      last = now;
  }
  EXPECT_GE(now.posts, last.posts + 3);
  EXPECT_LE(last.messages, before + at_most);
}

TEST(Clients, ThatAreFrozenAreStillAskedWhenTheirRingIsFull) {
  expect_still_asked(8, 8, 8);
}

TEST(Clients, ThatAreFrozenAreStillAskedWhenTheyHaveAllRuns) {
  constexpr uint64_t runs_ahead = 256; // runs that the client has not taken: no more are sent
  expect_still_asked(1024, runs_ahead + 1, runs_ahead);
}

TEST(Figures, AreThoseOfWhatHasHappened) {
  Running server({}, [](Request &&request) {
    if (text(request.bytes()) == "fail")
      request.fail("why not");
    else
      request.reply(0);
  });
  Connected connected(server);
  for (int i = 0; i < 40; ++i)
    EXPECT_TRUE(connected.caller.call(bytes("?"), patient()));
  EXPECT_FALSE(connected.caller.call(bytes("fail"), patient()));
  const std::string lane = R"(thread="0",lane="0",server=")" + address + ':' +
                           std::to_string(server.server.port()) + '"';
  const Metrics of_sender = connected.sender.metrics(), of_server = server.server.metrics();
  EXPECT_EQ(of_sender.value("lane_up", lane), 1);
  EXPECT_EQ(of_sender.value("lane_requests", lane), 0);
  EXPECT_EQ(of_sender.value("lane_window", lane), 4096);
  for (const Metrics *each : {&of_sender, &of_server}) {
    EXPECT_EQ(each->value("requests_total", R"(outcome="response")"), 40);
    EXPECT_EQ(each->value("requests_total", R"(outcome="refused")"), 1);
    EXPECT_EQ(each->value("requests_total", R"(outcome="lost")"), 0);
    const std::string text = each->prometheus();
    EXPECT_NE(text.find("# TYPE rdmashared_requests_total counter\n"
                        "rdmashared_requests_total{outcome=\"response\"} 40\n"),
              text.npos)
        << text;
    EXPECT_NE(text.find("# TYPE rdmashared_service_seconds histogram\n"), text.npos);
    EXPECT_EQ(text.find("rdmashared_service_seconds_count 0\n"), text.npos) << text; // some of 41
    EXPECT_NE(each->text().find("service_seconds: half within "), text.npos);
  }
  EXPECT_EQ(of_sender.value("worker_requests",
                            R"(thread="0",worker="0",pid=")" + std::to_string(getpid()) + '"'),
            0);
  EXPECT_EQ(of_server.value("client_requests", R"(connection="1",host=")" + address + '"'), 0);
}

} // namespace
} // namespace in_one_process

// SPDX-License-Identifier: MIT
// Tests each outcome of a request, with exceptions and without; limits, cancelling, batches.
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <stdexcept>
#include <utility>

namespace {
thread_local uint32_t yields = 0; // calls by this thread
} // namespace

// For the libraries, too, in place of libc's.
int sched_yield() noexcept {
  ++yields;
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace in_one_process {
namespace {

using std::chrono::milliseconds;

const std::string too_long(100'000, 'x');

bool is_readable(int fd, milliseconds limit) {
  pollfd poller{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&poller, 1, static_cast<int>(limit.count())) > 0;
}

template <typename F> Outcome outcome_of(F request) {
  return failure_of(request).outcome();
}

TEST(Outcomes, AreTypedAndNeedNoException) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .slots = 64, .area_slots = 1});
  Caller &caller = connected.caller;
  EXPECT_EQ(caller.call(bytes(too_long)).outcome, Outcome::too_long);
  EXPECT_EQ(outcome_of([&] { caller.request_async(bytes(too_long)); }), Outcome::too_long);

  Pending first = caller.request_async(bytes("1"), patient());
  EXPECT_EQ(caller.call(bytes("2"), {.limit = milliseconds(1)}).outcome, Outcome::no_room);
  // At once: a wait for room would take an hour.
  const RequestOptions an_hour{.limit = std::chrono::hours(1)};
  EXPECT_EQ(outcome_of([&] { caller.request_async(bytes("2"), an_hour); }), Outcome::no_room);
  EXPECT_EQ(outcome_of([&] {
              caller.request_then(
                  bytes("2"), [](Pending &) {}, an_hour);
            }),
            Outcome::no_room);
  kept.pop().reply(bytes("one"));
  const Response one = first.take();
  EXPECT_TRUE(one);
  EXPECT_EQ(text(one.bytes), "one");

  Pending second = caller.request_async(bytes("2"), patient());
  kept.pop().fail("in these words");
  const Response refused = second.take();
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.outcome, Outcome::refused);
  EXPECT_EQ(text(refused.bytes), "in these words");
}

// When the limit of a request passes before the sender has sent it, the sender says so. The caller
// takes its word, if that comes before it looks at the clock itself.
bool is_late(Outcome outcome) {
  return outcome == Outcome::timed_out || outcome == Outcome::expired;
}

TEST(Outcomes, LimitsHoldForAllWaysToAsk) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected(server);
  const RequestOptions soon{.limit = milliseconds(50)};
  Caller &caller = connected.caller;
  EXPECT_TRUE(is_late(caller.call(bytes("?"), soon).outcome));
  Pending pending = caller.request_async(bytes("?"), soon);
  EXPECT_TRUE(is_late(outcome_of([&] { pending.wait(); })));
  EXPECT_NE(error_of([&] { pending.wait(); }).find("collected already"), std::string::npos);
  Pending longer = caller.request_async(bytes("?"), soon);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_late(outcome_of([&] { longer.wait(time_limit); })));
  EXPECT_LT(std::chrono::steady_clock::now() - began, time_limit);
  std::vector<Pending> several;
  several.push_back(caller.request_async(bytes("?"), patient()));
  several.push_back(caller.request_async(bytes("?"), soon));
  EXPECT_EQ(caller.wait_any(several, time_limit), 1);
  EXPECT_TRUE(several[1].is_ready());
  EXPECT_TRUE(is_late(several[1].take().outcome));
  Outcome of_callback = Outcome::response;
  caller.request_then(
      bytes("?"), [&](Pending &done) { of_callback = done.take().outcome; }, soon);
  EXPECT_EQ(caller.run_ready(time_limit), 1);
  EXPECT_TRUE(is_late(of_callback));
}

TEST(Outcomes, ALimitOfZeroDoesNotYield) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected(server);
  for (const Waiting waiting : {Waiting::events, Waiting::adaptive, Waiting::poll}) {
    const RequestOptions how{.limit = time_limit, .waiting = waiting};
    Pending pending = connected.caller.request_async(bytes("?"), how);
    Request request = kept.pop();
    const uint32_t before = yields;
    EXPECT_FALSE(pending.wait(milliseconds(0)));
    EXPECT_FALSE(connected.caller.wait_any({&pending, 1}, milliseconds(0), waiting));
    EXPECT_EQ(yields, before);
    if (waiting == Waiting::poll) {
      EXPECT_FALSE(pending.wait(milliseconds(100)));
      EXPECT_GT(yields, before) << "else nothing is counted here";
    }
    request.reply(bytes("!"));
    EXPECT_EQ(response_of(pending), "!");
  }
}

TEST(Outcomes, OfASenderThatHasEnded) {
  Kept kept;
  Running server({}, keep_in(kept));
  auto sender = std::make_unique<Sender>(
      SenderOptions{.servers = {server.where()}, .name = "gone." + std::to_string(getpid())});
  sender->wait_connected(time_limit);
  Caller caller = Caller::join("gone." + std::to_string(getpid()));
  Pending pending = caller.request_async(bytes("?"), patient());
  int called = 0;
  caller.request_then(
      bytes("?"), [&](Pending &done) { called += done.take().outcome == Outcome::lost; },
      patient());
  const Request first = kept.pop(), second = kept.pop(); // and answers neither
  caller.fd();
  EXPECT_EQ(caller.run_ready(), 0); // takes what is readable after the first fd()
  EXPECT_FALSE(is_readable(caller.fd(), milliseconds(0)));
  sender.reset();
  EXPECT_TRUE(pending.is_ready());
  EXPECT_EQ(pending.take().outcome, Outcome::lost); // it may have been sent
  EXPECT_TRUE(is_readable(caller.fd(), time_limit));
  EXPECT_EQ(caller.run_ready(), 1);
  EXPECT_EQ(called, 1);
  EXPECT_FALSE(is_readable(caller.fd(), milliseconds(0))); // or the event loop never sleeps again
  EXPECT_EQ(outcome_of([&] { caller.wait_connected(time_limit); }), Outcome::sender_gone);
  EXPECT_EQ(caller.call(bytes("?"), patient()).outcome, Outcome::sender_gone);
  const std::array one{bytes("?")};
  EXPECT_EQ(outcome_of([&] { caller.request_batch(one); }), Outcome::sender_gone);
  const Sender again({.servers = {server.where()}, .name = "gone." + std::to_string(getpid())});
  caller = Caller::join("gone." + std::to_string(getpid()));
  EXPECT_TRUE(caller.wait_connected(time_limit));
}

TEST(Outcomes, OfAnAnswerThatCameBeforeTheSenderEnded) {
  Kept kept;
  Running server({}, keep_in(kept));
  const std::string name = "gone." + std::to_string(getpid());
  auto sender = std::make_unique<Sender>(SenderOptions{.servers = {server.where()}, .name = name});
  sender->wait_connected(time_limit);
  Caller caller = Caller::join(name);
  std::vector<Pending> pending;
  pending.push_back(caller.request_async(bytes("?"), patient()));
  kept.pop().reply(bytes("yes"));
  EXPECT_TRUE(caller.wait_any(pending, time_limit));
  sender.reset();
  EXPECT_EQ(text(pending.front().take().bytes), "yes");
}

TEST(Handles, LiveInContainers) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected(server);
  std::vector<Pending> pending;
  for (int i = 0; i < 4; ++i)
    pending.push_back(connected.caller.request_async(bytes(std::to_string(i)), patient()));
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i)
    requests.push_back(kept.pop());
  for (Request &each : requests)
    if (text(each.bytes()) == "2")
      each.reply(bytes("two"));
  const auto ready = connected.caller.wait_any(pending, time_limit);
  ASSERT_EQ(ready, 2);
  EXPECT_EQ(text(pending[2].wait()), "two");
  pending.erase(pending.begin() + 2);
  std::swap(pending[0], pending[2]);
  for (Request &each : requests)
    if (!each.is_answered())
      each.reply(each.bytes());
  EXPECT_EQ(text(pending[0].wait()), "3");
  EXPECT_EQ(text(pending[1].wait()), "1");
  EXPECT_EQ(text(pending[2].wait()), "0");
}

TEST(Handles, CancelWhatHasNotBegun) {
  Queue<std::string> begun;
  std::promise<void> gate;
  Running server({.handler_threads = 1, .inline_services = 2}, [&](Request &&request) {
    const std::string words = text(request.bytes());
    EXPECT_TRUE(request.is_wanted()); // before the test hears of it, and cancels it
    begun.push(words);
    if (words == "blocks") {
      gate.get_future().wait();
      EXPECT_FALSE(request.is_wanted()); // cancelled meanwhile
    }
    request.reply(0);
  });
  Connected connected(server);
  Caller &caller = connected.caller;
  Pending blocks = caller.request_async(bytes("blocks"), patient());
  EXPECT_EQ(begun.pop(), "blocks");
  Pending unwanted = caller.request_async(bytes("unwanted"), patient());
  Pending replaced = caller.request_async(bytes("replaced"), patient());
  blocks.cancel();
  unwanted.cancel();
  unwanted.cancel(); // nothing happens
  replaced = caller.request_async(bytes("wanted"), patient());
  // The server takes messages in order, and answers this one before the pool goes on.
  EXPECT_TRUE(caller.call(bytes("inline"), {.limit = time_limit, .service = 1}));
  gate.set_value();
  EXPECT_TRUE(replaced.take());
  EXPECT_EQ(begun.pop(), "inline");
  EXPECT_EQ(begun.pop(), "wanted");
  EXPECT_TRUE(begun.is_empty());
  EXPECT_EQ(connected.sender.metrics().value("cancels_total"), 3);
}

TEST(Batches, GoTogetherAsFarAsThereIsRoom) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .area_slots = 3});
  const std::array<std::string, 4> words{"a", "b", "c", "d"};
  std::vector<std::span<const std::byte>> requests;
  for (const std::string &each : words)
    requests.push_back(bytes(each));
  std::vector<Pending> sent = connected.caller.request_batch(requests, patient());
  ASSERT_EQ(sent.size(), 3);
  for (int i = 0; i < 3; ++i) {
    Request request = kept.pop();
    request.reply(request.bytes());
  }
  for (size_t i = 0; i < sent.size(); ++i)
    EXPECT_EQ(text(sent[i].wait()), words.at(i));
  requests[1] = bytes(too_long);
  EXPECT_EQ(outcome_of([&] { connected.caller.request_batch(requests); }), Outcome::too_long);
  EXPECT_TRUE(connected.caller.request_batch({}).empty());
}

TEST(Callbacks, ThatThrowLeaveTheOthersForTheNextTime) {
  Running server({}, [](Request &&request) { request.reply(request.bytes()); });
  Connected connected(server);
  Caller &caller = connected.caller;
  int called = 0;
  const auto fail = [&](Pending &) {
    ++called;
    throw std::runtime_error("a mistake of the program");
  };
  constexpr int count = 3;
  for (int i = 0; i < count; ++i)
    caller.request_then(bytes("?"), fail, patient());
  for (int i = 1; i <= count; ++i) {
    EXPECT_TRUE(is_readable(caller.fd(), time_limit));
    EXPECT_THROW(caller.run_ready(time_limit), std::runtime_error);
    EXPECT_EQ(called, i);
  }
  EXPECT_EQ(caller.run_ready(), 0);
}

TEST(Callbacks, AreWaitedForByAThreadThatSleepsAlready) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected connected(server);
  std::promise<void> begins;
  auto count = std::async(std::launch::async, [&] {
    begins.set_value();
    return connected.caller.run_ready(time_limit);
  });
  begins.get_future().wait();
  const auto began = std::chrono::steady_clock::now();
  connected.caller.request_then(bytes("?"), [](Pending &) {}, {.limit = milliseconds(50)});
  EXPECT_EQ(count.get(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, time_limit);
}

TEST(Callbacks, AreWaitedForWithoutAnEventLoop) {
  Running server({}, [](Request &&request) { request.reply(request.bytes()); });
  Connected connected(server);
  EXPECT_EQ(connected.caller.run_ready(milliseconds(1)), 0);
  int right = 0;
  for (int i = 0; i < 20; ++i) {
    const std::string words = std::to_string(i);
    connected.caller.request_then(
        bytes(words), [&, words](Pending &done) { right += text(done.wait()) == words; },
        patient());
  }
  for (size_t left = 20; left > 0;) {
    const size_t count = connected.caller.run_ready(time_limit);
    ASSERT_GT(count, 0);
    left -= count;
  }
  EXPECT_EQ(right, 20);
}

} // namespace
} // namespace in_one_process

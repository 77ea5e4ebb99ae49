// SPDX-License-Identifier: MIT
// Requests that have come together: how long ago, and the memory that they use.
#include "batch.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace rdmashared; // for tests alone
using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t mebibyte = 1 << 20;

// @param memory bytes for its requests
std::shared_ptr<SessionState> a_state(uint64_t memory = mebibyte) {
  return std::make_shared<SessionState>(Client{}, std::make_shared<Answers>(),
                                        std::make_shared<Budget>(mebibyte), 0, memory, 0);
}

// A batch with requests that have no bytes.
std::unique_ptr<Batch> a_batch(const std::shared_ptr<SessionState> &state, size_t count,
                               const Header &header) {
  auto batch = std::make_unique<Batch>(state, count, 0);
  for (size_t i = 0; i < count; ++i) {
    Received &each = batch->requests.emplace_back();
    each.batch = batch.get();
    each.header = header;
  }
  return batch;
}

// @return the words of the failure with which a handler's request has been answered
std::string failure_in(const std::shared_ptr<SessionState> &state, const RequestHandler &handler) {
  Stats stats;
  Job(a_batch(state, 1, {.max_response = 1000, .kind = Kind::request})).handle(handler, stats);
  std::vector<Received *> answered;
  state->answers->take(answered);
  EXPECT_EQ(answered.size(), 1);
  EXPECT_EQ(answered.front()->answer, Kind::failure);
  const auto &words = answered.front()->reason_or_response;
  std::string said(reinterpret_cast<const char *>(words.data()), words.size());
  answered.front()->done();
  return said;
}

// A time limit that ends too early fails a request for nothing; each of some 100 batches begins at
// another point of the kernel's tick.
TEST(Batch, IsNeverOlderThanItIs) {
  const auto state = a_state();
  for (const auto end = Clock::now() + milliseconds(100); Clock::now() < end;) {
    const auto before = Clock::now();
    const Batch batch(state, 1, 0);
    while (Clock::now() - before < milliseconds(1)) {
      const auto age = batch.age();
      ASSERT_LE(age, Clock::now() - before);
    }
  }
}

TEST(Batch, GetsOlder) {
  const auto state = a_state();
  const Batch batch(state, 1, 0);
  while (batch.age() < milliseconds(20)) // else the test's time limit ends it
    ;
}

// A handler that takes what response_space() gives must not write where there is nothing.
TEST(Batch, WithoutMemoryForAResponseARequestFails) {
  const auto state = a_state(sizeof(Batch));
  const std::string why = "no memory for its response (ServerOptions::memory)";
  EXPECT_NE(
      failure_in(state, [](Request &&request) { request.response_space().front() = {}; }).find(why),
      std::string::npos);
  EXPECT_NE(failure_in(state, [](Request &&request) { request.reply(10); }).find(why),
            std::string::npos);
  const std::vector<std::byte> response(10);
  EXPECT_NE(failure_in(state, [&](Request &&request) { request.reply(response); }).find(why),
            std::string::npos);
}

// Posts have no window: a client could send any number of them that have no bytes.
TEST(Batch, TakesMemoryForEachRequest) {
  const auto state = a_state();
  constexpr size_t count = 1000;
  {
    const Job job(a_batch(state, count, {.kind = Kind::post}));
    EXPECT_LE(static_cast<uint64_t>(state->own.left()), mebibyte - count * sizeof(Received));
  }
  EXPECT_EQ(state->own.left(), mebibyte);
}

// The run of one client waits, since the batch of another has the memory.
TEST(Batch, WakesTheLoopsOfAllClientsThatWaitForItsMemory) {
  const std::vector loops{std::make_shared<Answers>(), std::make_shared<Answers>()};
  const auto total = std::make_shared<Budget>(mebibyte, loops);
  const auto state_of = [&](size_t loop) {
    return std::make_shared<SessionState>(Client{}, loops[loop], total, 0, mebibyte, 0);
  };
  const auto one = state_of(0), other = state_of(1);
  const Job of_other(a_batch(other, 1, {.kind = Kind::post}));
  {
    const Job of_one(a_batch(one, 1, {.kind = Kind::post}));
    const auto left = static_cast<uint64_t>(total->left());
    EXPECT_TRUE(other->may_take(left));
    EXPECT_FALSE(other->may_take(left + 1));
    EXPECT_FALSE(loops[1]->event().take_back());
  }
  EXPECT_TRUE(loops[1]->event().take_back());
  EXPECT_TRUE(one->may_take(mebibyte)); // it has no batch
}

// The state that a program has made for a client can hold requests of other clients.
TEST(Batch, TheLastOfAClientCanEndRequestsOfAnother) {
  const auto answers = std::make_shared<Answers>();
  const auto one_request = [&answers](const std::shared_ptr<void> &clients) {
    auto state = std::make_shared<SessionState>(Client{}, answers,
                                                std::make_shared<Budget>(1 << 20), 0, 1 << 20, 0);
    state->state = clients;
    auto batch = std::make_unique<Batch>(state, 1, 0);
    batch->requests.emplace_back().batch = batch.get();
    std::optional<Request> kept;
    Stats stats;
    Job(std::move(batch))
        .handle([&](Request &&request) { kept.emplace(std::move(request)); }, stats);
    return std::make_shared<Request>(std::move(*kept));
  };
  auto other = one_request(nullptr);
  const std::weak_ptr<Request> still_there = other;
  auto last = one_request(std::move(other));
  answers->close();
  last.reset(); // with a lock held here, it would wait for itself
  EXPECT_TRUE(still_there.expired());
}

} // namespace

// SPDX-License-Identifier: MIT
// Requests that have come together: how long ago.
#include "session.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

using namespace rdmashared; // for tests alone
using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<SessionState> a_state() {
  return std::make_shared<SessionState>(Client{}, std::make_shared<Answers>(),
                                        std::make_shared<Budget>(1 << 20), 0, 1 << 20, 0);
}

// A time limit that ends too early fails a request for nothing; each of some 100 batches begins at
// another point of the kernel's tick.
TEST(AreaBatch, IsNeverOlderThanItIs) {
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

TEST(AreaBatch, GetsOlder) {
  const auto state = a_state();
  const Batch batch(state, 1, 0);
  while (batch.age() < milliseconds(20)) // else the test's time limit ends it
    ;
}

// The state that a program has made for a client can hold requests of other clients.
TEST(AreaBatch, TheLastOfAClientCanEndRequestsOfAnother) {
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

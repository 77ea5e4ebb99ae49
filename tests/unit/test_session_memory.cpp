// SPDX-License-Identifier: MIT
#include "session_memory.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace rdmashared {
namespace {

constexpr Shape shape{.slots = 4, .slot_size = 64, .window = 4, .largest = 0};

struct Fixture : testing::Test {
  std::shared_ptr<SessionMemory> make() {
    EXPECT_TRUE(budget->take(memory_for(shape)));
    return std::make_shared<SessionMemory>(shape, Client{}, Share(budget, memory_for(shape)), wake);
  }

  std::shared_ptr<Budget> budget = std::make_shared<Budget>(memory_for(shape));
  std::shared_ptr<Wake> wake = std::make_shared<Wake>();
};
using WorkOfASession = Fixture;

constexpr Message answer{
    .kind = Kind::response, .service = 0, .slot = 0, .slots = 1, .length = 0, .id = 0};

TEST_F(WorkOfASession, WakesTheServersThreadOnce) {
  const auto memory = make();
  wake->thread = std::this_thread::get_id();
  std::thread([&] { memory->finish(answer); }).join();
  EXPECT_TRUE(wake->event.take_back());
  std::thread([&] { memory->finish(answer); }).join(); // it has been told, and has not looked
  EXPECT_FALSE(wake->event.take_back());
  std::vector<Message> finished;
  memory->take_finished(finished);
  EXPECT_EQ(finished.size(), 2);
  std::thread([&] { memory->finish(answer); }).join();
  EXPECT_TRUE(wake->event.take_back());
}

// It may be in a handler, and then the other thread with the loop must hear of the second answer.
TEST_F(WorkOfASession, AnAnswerOfTheThreadItselfKeepsNoOtherFromWakingIt) {
  const auto memory = make();
  wake->thread = std::this_thread::get_id();
  memory->finish(answer);
  std::thread([&] { memory->finish(answer); }).join();
  EXPECT_TRUE(wake->event.take_back());
}

TEST_F(WorkOfASession, DoesNotWakeTheThreadThatWorks) {
  const auto memory = make();
  wake->thread = std::this_thread::get_id();
  memory->finish(answer);
  EXPECT_FALSE(wake->event.take_back());
  EXPECT_EQ(memory->finished.size(), 1);
}

TEST_F(WorkOfASession, GivesItsMemoryBack) {
  auto memory = make();
  EXPECT_FALSE(budget->take(1));
  std::shared_ptr<SessionMemory> kept = memory; // as a request does
  memory.reset();
  EXPECT_FALSE(budget->take(1));
  kept.reset();
  EXPECT_TRUE(budget->take(memory_for(shape)));
}

} // namespace
} // namespace rdmashared

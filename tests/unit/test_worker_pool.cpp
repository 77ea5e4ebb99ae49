// SPDX-License-Identifier: MIT
#include "worker_pool.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace rdmashared {
namespace {

using Jobs = std::vector<std::function<void()>>;
using FunctionPool = Pool<std::function<void()>>;

TEST(Pool, WithoutThreadsTheCallerWorks) {
  FunctionPool pool(0);
  std::thread::id who;
  Jobs jobs{[&] { who = std::this_thread::get_id(); }};
  EXPECT_EQ(pool.add(jobs), 0);
  EXPECT_TRUE(jobs.empty());
  EXPECT_EQ(who, std::this_thread::get_id());
}

TEST(Pool, DropsWhatIsQueuedWhenItGoes) {
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> queued = held;
  bool has_run = false;
  std::promise<void> begun, gate;
  auto pool = std::make_unique<FunctionPool>(1);
  Jobs jobs{[&] {
              begun.set_value();
              gate.get_future().wait(); // keeps the only thread busy
            },
            [its = std::move(held), &has_run] { has_run = true; }};
  pool->add(jobs);
  begun.get_future().wait();
  std::thread ending([&] { pool.reset(); });
  while (!queued.expired()) // it goes before the thread is waited for
    std::this_thread::yield();
  gate.set_value();
  ending.join();
  EXPECT_FALSE(has_run);
}

// A thread that joins has one of the places, so no job runs meanwhile. It runs afterwards.
TEST(Pool, HasNoMorePlacesThanThreads) {
  FunctionPool pool(1);
  ASSERT_TRUE(pool.join());
  EXPECT_FALSE(pool.join());
  std::atomic<bool> has_joined = true, was_alone = false;
  std::promise<void> ran;
  Jobs jobs{[&] {
    was_alone = !has_joined;
    ran.set_value();
  }};
  EXPECT_EQ(pool.add(jobs), 0);
  has_joined = false;
  pool.leave();
  ran.get_future().wait();
  EXPECT_TRUE(was_alone);
}

TEST(Pool, IsNotJoinedBeforeAJobThatWaits) {
  FunctionPool pool(1);
  std::promise<void> begun, gate, ran;
  Jobs jobs{[&] {
              begun.set_value();
              gate.get_future().wait();
              EXPECT_FALSE(pool.join());
            },
            [&] { ran.set_value(); }};
  pool.add(jobs);
  begun.get_future().wait();
  gate.set_value();
  ran.get_future().wait();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // which need the address space
// In a process of its own: it has address space for some.
[[noreturn]] void want_many_threads() {
  const rlimit limit{.rlim_cur = 256 << 20, .rlim_max = 256 << 20};
  setrlimit(RLIMIT_AS, &limit);
  try {
    const FunctionPool pool(10'000);
  } catch (const std::system_error &) {
    _exit(0);
  }
  _exit(1);
}

TEST(Pool, ThrowsIfTheHostHasNoMoreThreads) {
  EXPECT_EXIT(want_many_threads(), testing::ExitedWithCode(0), "");
}
#endif

TEST(WordsOf, WhateverWasThrown) {
  EXPECT_EQ(words_of(std::make_exception_ptr(std::runtime_error("words"))), "words");
  EXPECT_EQ(words_of(std::make_exception_ptr(42)), "an unknown exception");
}

} // namespace
} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Threads for what takes long, and which signals come to a thread of the library.
#include "epoll_loop.hpp"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace rdmashared; // for tests alone
using std::chrono::seconds;

namespace {

template <typename Value> bool comes(const std::future<Value> &future) {
  return future.wait_for(seconds(60)) == std::future_status::ready;
}

class PoolOf : public testing::TestWithParam<Waiting> {};

TEST_P(PoolOf, RunsEachFunctionOnce) {
  constexpr size_t functions = 3000;
  std::vector<std::atomic<int>> runs(functions);
  std::atomic<size_t> left = functions;
  std::promise<void> done;
  {
    Pool pool(3, GetParam());
    EXPECT_EQ(pool.size(), 3U);
    std::vector<std::thread> adders;
    for (size_t thread = 0; thread < 3; ++thread)
      adders.emplace_back([&, thread] {
        for (size_t i = thread; i < functions; i += 3)
          pool.add([&, i] {
            ++runs[i];
            if (--left == 0)
              done.set_value();
          });
      });
    for (std::thread &adder : adders)
      adder.join();
    EXPECT_TRUE(comes(done.get_future()));
  }
  for (const auto &each : runs)
    ASSERT_EQ(each.load(), 1);
}

// All threads work at the same time: each waits for the others.
TEST_P(PoolOf, HasSoManyThreads) {
  constexpr uint32_t threads = 4;
  std::atomic<uint32_t> here = 0;
  std::promise<void> all;
  const auto together = all.get_future().share();
  std::atomic<uint32_t> met = 0;
  {
    Pool pool(threads, GetParam());
    for (uint32_t i = 0; i < threads; ++i)
      pool.add([&, together] {
        if (++here == threads)
          all.set_value();
        met += together.wait_for(seconds(60)) == std::future_status::ready;
      });
    EXPECT_EQ(together.wait_for(seconds(60)), std::future_status::ready);
  }
  EXPECT_EQ(met.load(), threads);
}

TEST_P(PoolOf, AFunctionThatIsAddedLateFindsASleeper) {
  Pool pool(1, GetParam());
  for (int i = 0; i < 500; ++i) { // again and again the pool has just become idle
    std::promise<void> done;
    const auto ran = done.get_future();
    pool.add([&done] { done.set_value(); });
    ASSERT_TRUE(comes(ran)) << i;
  }
}

TEST_P(PoolOf, ItsEndWaitsForWhatHasBegunAndDropsTheRest) {
  std::promise<void> begun, go_on;
  auto may_go_on = go_on.get_future().share();
  bool has_ended = false, has_run = false;
  const auto owned = std::make_shared<int>();
  auto pool = std::make_unique<Pool>(1, GetParam());
  pool->add([&, may_go_on] {
    begun.set_value();
    may_go_on.wait();
    has_ended = true;
  });
  ASSERT_TRUE(comes(begun.get_future()));
  for (int i = 0; i < 5; ++i)
    pool->add([&has_run, owned] { has_run = true; });
  EXPECT_EQ(owned.use_count(), 6);
  std::thread end([&] { pool.reset(); });
  const auto deadline = Clock::now() + seconds(60);
  while (owned.use_count() > 1 && Clock::now() < deadline) // dropped before the first one ends
    std::this_thread::yield();
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_FALSE(has_ended);
  go_on.set_value();
  end.join();
  EXPECT_TRUE(has_ended);
  EXPECT_FALSE(has_run);
}

TEST_P(PoolOf, AnIdleOneEnds) {
  for (int i = 0; i < 50; ++i)
    const Pool pool(2, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Area, PoolOf,
                         testing::Values(Waiting::poll, Waiting::events, Waiting::adaptive));

TEST(Pool, SaysWhetherItHasWokenAThread) {
  std::promise<void> begun, go_on;
  auto may_go_on = go_on.get_future().share();
  Pool pool(1);
  pool.add([&, may_go_on] {
    begun.set_value();
    may_go_on.wait();
  });
  ASSERT_TRUE(comes(begun.get_future()));
  EXPECT_FALSE(pool.add([] {})); // its thread works
  go_on.set_value();
  const auto deadline = Clock::now() + seconds(60);
  while (!pool.add([] {}) && Clock::now() < deadline) // until it sleeps
    std::this_thread::yield();
  EXPECT_LT(Clock::now(), deadline);
}

// ---- work in the background

TEST(Aside, WorksInThePoolAndGoesOnInTheLoop) {
  Loop loop;
  Pool pool(1);
  const auto here = std::this_thread::get_id();
  std::thread::id worked_in, went_on_in, destroyed_in;
  const auto give_away = [&](std::shared_ptr<void> its) {
    run_in_background(
        pool, loop, [&, its = std::move(its)] { worked_in = std::this_thread::get_id(); },
        [&](const std::exception_ptr &failure) {
          EXPECT_FALSE(failure);
          went_on_in = std::this_thread::get_id();
        });
  };
  give_away(std::shared_ptr<void>(new int, [&](int *its) {
    delete its;
    destroyed_in = std::this_thread::get_id();
  }));
  const auto deadline = Clock::now() + seconds(60);
  while (went_on_in == std::thread::id() && Clock::now() < deadline)
    loop.wait(deadline, true);
  EXPECT_EQ(went_on_in, here);
  EXPECT_EQ(destroyed_in, here); // and not in the pool
  EXPECT_NE(worked_in, here);
  EXPECT_NE(worked_in, std::thread::id());
}

TEST(Aside, TellsWhatTheWorkHasThrown) {
  Loop loop;
  Pool pool(1);
  std::vector<std::string> said;
  const auto note = [&](const std::exception_ptr &failure) { said.push_back(words_of(failure)); };
  run_in_background(
      pool, loop, [] { throw std::runtime_error("it did not work"); }, note);
  run_in_background(
      pool, loop, [] { throw 5; }, note);
  const auto deadline = Clock::now() + seconds(60);
  while (said.size() < 2 && Clock::now() < deadline)
    loop.wait(deadline, true);
  EXPECT_EQ(said, (std::vector<std::string>{"it did not work", "an unknown exception"}));
}

TEST(Aside, AClosedLoopDropsWhatFollows) {
  Loop loop;
  loop.close();
  const auto owned = std::make_shared<int>();
  std::promise<void> worked;
  {
    Pool pool(1);
    run_in_background(
        pool, loop, [&worked, owned] { worked.set_value(); },
        [](const std::exception_ptr &) { ADD_FAILURE() << "the loop is closed"; });
    EXPECT_TRUE(comes(worked.get_future()));
  }
  loop.wait(Clock::now(), false);
  EXPECT_EQ(owned.use_count(), 1);
}

// ---- signals

sigset_t blocked_now() {
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return now;
}

TEST(NoSignals, SignalsThatAThreadRaisesItselfAreNotBlocked) {
  sigset_t usual, before;
  sigemptyset(&before);
  sigaddset(&before, SIGUSR1); // and no other, whatever has been blocked until now
  pthread_sigmask(SIG_SETMASK, &before, &usual);
  std::promise<sigset_t> in_pool;
  {
    Pool pool(1);
    pool.add([&] { in_pool.set_value(blocked_now()); });
    sigset_t its = in_pool.get_future().get();
    for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
      EXPECT_FALSE(sigismember(&its, raised)) << raised;
    for (const int sent : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM,
                           SIGPIPE, SIGWINCH, SIGRTMIN, SIGRTMAX})
      EXPECT_TRUE(sigismember(&its, sent)) << sent;
  }
  const sigset_t after = blocked_now(); // the thread that made it is as it was
  for (int each = 1; each < SIGRTMAX; ++each)
    EXPECT_EQ(sigismember(&before, each), sigismember(&after, each)) << each;
  pthread_sigmask(SIG_SETMASK, &usual, nullptr);
}

} // namespace

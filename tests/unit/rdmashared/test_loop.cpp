// SPDX-License-Identifier: MIT
// The loop that sleeps on descriptors, and the looks before a sleep.
#include "epoll_loop.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace rdmashared; // for tests alone
using rdmacommon::Error, rdmacommon::File;
using std::chrono::seconds;

namespace {

// Until something has happened.
template <typename Condition> bool turn_until(Loop &loop, Condition is_true) {
  const auto deadline = Clock::now() + seconds(60);
  while (!is_true() && Clock::now() < deadline)
    loop.wait(deadline, true);
  return is_true();
}

// ---- events

TEST(Event, IsReadableOnceSomebodyHasRung) {
  const Event event;
  EXPECT_FALSE(event.take_back());
  event.ring();
  event.ring();
  EXPECT_TRUE(event.take_back());
  EXPECT_FALSE(event.take_back());
  const uint64_t most = ~uint64_t{0} - 1;
  ASSERT_EQ(write(event.fd(), &most, sizeof most), static_cast<ssize_t>(sizeof most));
  errno = 77;
  event.ring(); // it is full, which is no error and does not block
  EXPECT_EQ(errno, 77);
  EXPECT_TRUE(event.take_back());
}

// ---- looks

TEST(IdlePolicy, LooksAsOftenAsItIsTold) {
  IdlePolicy polls(Waiting::poll), sleeps(Waiting::events);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(polls.looks(), INT_MAX);
    EXPECT_EQ(sleeps.looks(), 0);
    polls.note(5, false);
    sleeps.note(0, false);
  }
}

TEST(IdlePolicy, LooksLessOnceThatHasNotPaidAndMoreOnceItHas) {
  IdlePolicy policy(Waiting::adaptive);
  const int most = policy.looks();
  for (int i = 0; i < 100; ++i)
    policy.note(0, false); // it has not looked, so it has learned nothing
  EXPECT_EQ(policy.looks(), most);
  int failures = 0;
  for (; policy.looks() == most && failures < 100; ++failures)
    policy.note(most, false);
  EXPECT_GT(failures, 1); // one failure is none
  EXPECT_LT(failures, 100);
  EXPECT_LT(policy.looks(), most);
  EXPECT_GT(policy.looks(), 0); // or it could never learn that it pays again
  for (int i = 0; i < 100; ++i)
    policy.note(1, false);
  policy.note(1, true); // and soon, however long it has not paid
  EXPECT_EQ(policy.looks(), most);
  for (int i = 0; i < 100; ++i)
    policy.note(1, true);
  int later = 0;
  for (; policy.looks() == most && later < 100; ++later)
    policy.note(most, false);
  EXPECT_EQ(later, failures); // nor does it get used to success
}

// ---- the loop

TEST(Loop, CarriesOutInOrderWhatOtherThreadsSend) {
  constexpr int threads = 4, each = 2000;
  Loop loop;
  std::vector<int> last(threads, -1);
  int count = 0, wrong = 0;
  const auto here = std::this_thread::get_id();
  std::vector<std::thread> senders;
  for (int thread = 0; thread < threads; ++thread)
    senders.emplace_back([&, thread] {
      for (int i = 0; i < each; ++i)
        loop.send([&, thread, i] {
          wrong += std::exchange(last[static_cast<size_t>(thread)], i) != i - 1 ||
                   std::this_thread::get_id() != here;
          ++count;
        });
    });
  EXPECT_TRUE(turn_until(loop, [&] { return count == threads * each; }));
  for (std::thread &sender : senders)
    sender.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Loop, AFunctionMaySendAnotherOne) {
  Loop loop;
  int depth = 0;
  std::function<void()> again = [&] {
    if (++depth < 5)
      loop.send(again);
  };
  loop.send(again);
  EXPECT_TRUE(turn_until(loop, [&] { return depth == 5; }));
}

TEST(Loop, AfterCloseItDropsWhatIsSent) {
  Loop loop;
  int count = 0;
  const auto owned = std::make_shared<int>();
  loop.send([&count, owned] { ++count; });
  // A dropped function may own something that sends at its end.
  std::shared_ptr<void> last_words(nullptr, [&](void *) { loop.send([&] { ++count; }); });
  loop.send([its = std::move(last_words)] {});
  EXPECT_EQ(owned.use_count(), 2);
  loop.close();
  EXPECT_EQ(owned.use_count(), 1);
  loop.send([&count, owned] { ++count; });
  EXPECT_EQ(owned.use_count(), 1);
  loop.wait(Clock::now(), true);
  EXPECT_EQ(count, 0);
}

TEST(Loop, AForgottenDescriptorIsNotHeard) {
  Loop loop;
  const Event event;
  int count = 0;
  event.ring();
  loop.watch(event.fd(), [&] { ++count; });
  loop.wait(Clock::now(), false);
  loop.wait(Clock::now(), false); // nobody has read it
  EXPECT_EQ(count, 2);
  loop.forget(event.fd());
  loop.forget(event.fd()); // nobody watches it
  loop.forget(-1);
  loop.wait(Clock::now(), false);
  EXPECT_EQ(count, 2);
  loop.watch(event.fd(), [&] { count += 10; });
  loop.wait(Clock::now(), false);
  EXPECT_EQ(count, 12);
}

// Both events are in the hands of wait() when the first function forgets the second one, and
// itself.
TEST(Loop, ForgetsFromInsideACallback) {
  for (const bool watches_again : {false, true}) {
    Loop loop;
    const std::array<Event, 2> events;
    int count = 0, again = 0;
    const auto owned = std::make_shared<std::string>("it lives while it runs");
    std::string said;
    for (const Event &event : events) {
      event.ring();
      loop.watch(event.fd(), [&, owned] {
        ++count;
        for (const Event &each : events) {
          loop.forget(each.fd());
          if (watches_again)
            loop.watch(each.fd(), [&] { ++again; });
        }
        said = *owned;
      });
    }
    loop.wait(Clock::now(), false);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(again, 0); // the events were of those who watched before
    EXPECT_EQ(said, *owned);
    EXPECT_EQ(owned.use_count(), 1);
    loop.wait(Clock::now(), false);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(again, watches_again ? 2 : 0);
  }
}

TEST(Loop, EdgesAreToldOnceAndNobodyReadsThem) {
  Loop loop;
  const Event event;
  int count = 0;
  loop.watch(
      event.fd(), [&] { ++count; }, true);
  loop.wait(Clock::now(), false);
  EXPECT_EQ(count, 0);
  for (int rings = 1; rings <= 3; ++rings) {
    event.ring();
    loop.wait(Clock::now(), false);
    loop.wait(Clock::now(), false);
    EXPECT_EQ(count, rings);
  }
}

// A watch that fails must not stay in part: the number of its descriptor soon belongs to another
// file, and forget() must find that one.
TEST(Loop, AFailedWatchLeavesNothing) {
  Loop loop;
  const auto owned = std::make_shared<int>();
  EXPECT_THROW(loop.watch(-1, [owned] {}), Error);
  EXPECT_EQ(owned.use_count(), 1);
  File regular(memfd_create("test", MFD_CLOEXEC));
  EXPECT_THROW(loop.watch(regular.get(), [owned] {}), Error); // it is always readable
  EXPECT_EQ(owned.use_count(), 1);
  const Event event, other;
  ASSERT_GE(dup2(event.fd(), regular.get()), 0);
  event.ring();
  other.ring();
  int count = 0;
  const auto forget_it = [&] {
    ++count;
    loop.forget(regular.get());
    loop.forget(other.fd());
  };
  loop.watch(regular.get(), forget_it);
  loop.watch(other.fd(), forget_it);
  loop.wait(Clock::now(), false);
  EXPECT_EQ(count, 1); // the second one was forgotten, whichever it was
}

TEST(Loop, EndsItsSleepAtItsTime) {
  Loop loop;
  const auto until = Clock::now() + std::chrono::milliseconds(20);
  while (Clock::now() < until) // a signal may end it before
    loop.wait(until, true);
  const auto before = Clock::now();
  loop.wait(before - seconds(5), true);
  loop.wait(Clock::time_point::min(), true);
  loop.wait(Clock::time_point::max(), false); // may not sleep
  EXPECT_LT(Clock::now() - before, seconds(60));
  loop.send([] {});
  loop.wait(Clock::time_point::max(), true); // something has happened
  EXPECT_LT(Clock::now() - before, seconds(60));
}

} // namespace

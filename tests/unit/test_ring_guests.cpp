// SPDX-License-Identifier: MIT
// Who wants to take part in a slot ring and says nothing, or something else, or comes when there is
// no room.
#include "ring_host_fixture.hpp"

#include <poll.h>
#include <sys/resource.h>

namespace {

TEST(RingHost, WhoSpeaksAnotherLanguageIsSentAway) {
  RingHost host(small, 1, 2);
  auto [host_end, mine] = make_link();
  host.invite(std::move(host_end));
  mine.tell("slot ring 2");
  EXPECT_FALSE(host.wait(milliseconds(10)));
  EXPECT_THROW(mine.hear(seconds(1)), Error);
  auto [other_end, other] = make_link();
  host.invite(std::move(other_end));
  other.tell("slot ring 1", std::array{STDIN_FILENO, STDIN_FILENO}); // two files
  EXPECT_FALSE(host.wait(milliseconds(10)));
  EXPECT_THROW(other.hear(seconds(1)), Error);
  EXPECT_EQ(host.joined(), 0u);
  EXPECT_THROW(connect_to_ring("nobody.listens.here"), Error);
  EXPECT_THROW(connect_to_ring(std::string(200, 'x')), Error);
  EXPECT_THROW(host.listen(""), Error);
}

TEST(RingHost, AWorkerCountsWhatItIsGiven) {
  const File memory = SlotRing::make(small), other = SlotRing::make({.slots = 8, .slot_size = 64});
  const auto joins = [&](const std::string &text, const std::vector<int> &files) {
    auto [host_end, worker_end] = make_link();
    host_end.tell(text, files);
    try {
      return RingWorker(std::move(worker_end)).rings() > 0;
    } catch (const Error &) {
      return false;
    }
  };
  const int bell = STDIN_FILENO, ring = memory.get();
  const std::string two = "slot ring 1 worker 7 rings 2";
  EXPECT_TRUE(joins(two + " doorbells 1", {bell, ring, ring}));
  EXPECT_TRUE(joins(two + " doorbells 2", {bell, bell, ring, ring}));
  EXPECT_FALSE(joins(two + " doorbells 1", {bell, ring}));
  EXPECT_FALSE(joins(two + " doorbells 1", {bell, ring, ring, ring}));
  EXPECT_FALSE(joins(two + " doorbells 1", {bell, ring, other.get()}));
  EXPECT_FALSE(joins(two + " doorbells 2", {bell, ring, ring}));
  EXPECT_FALSE(joins(two + " doorbells 3", {bell, bell, bell, ring, ring}));
  EXPECT_FALSE(joins(two + " doorbells 0", {ring, ring}));
  EXPECT_FALSE(joins(two, {bell, ring, ring}));
  const std::string one = " doorbells 1";
  EXPECT_FALSE(joins("slot ring 1 worker 7 rings 1" + one, {bell, bell}));
  EXPECT_FALSE(joins("slot ring 1 worker 7 rings 0" + one, {bell}));
  EXPECT_FALSE(joins("slot ring 1 worker 7 rings 4294967295" + one, {}));
  EXPECT_FALSE(joins("slot ring 1 worker 7 rings 15" + one, std::vector<int>(16, ring)));
  EXPECT_FALSE(joins("slot ring 1 worker 0 rings 1" + one, {bell, ring}));
  EXPECT_FALSE(joins("slot ring 1 worker 65535 rings 1" + one, {bell, ring}));
  EXPECT_FALSE(joins("slot ring 1 worker 7 rings 1" + one + " ", {bell, ring}));
  EXPECT_FALSE(joins("slot ring 1 worker 7" + one, {bell, ring}));
  EXPECT_FALSE(joins("slot ring 2 worker 7 rings 1" + one, {bell, ring}));
}

TEST(RingHost, WhoSaysNothingIsForgotten) {
  const std::string name = a_name();
  RingHost host(small);
  host.set_hello_limit(milliseconds(100));
  host.listen(name);
  std::vector<Link> mute;
  for (uint32_t i = 0; i < RingHost::max_silent + 3; ++i)
    mute.push_back(connect_to_ring(name));
  auto speaks = joining(connect_to_ring(name)); // behind all of them
  EXPECT_TRUE(wait_until(host, [&] {
    EXPECT_LE(host.silent(), RingHost::max_silent);
    return host.joined() == 1 && host.silent() == 0;
  }));
  EXPECT_EQ(speaks.get()->rings(), 1u);
  for (const Link &link : mute)
    EXPECT_THROW(link.hear(seconds(5)), Error);
  EXPECT_LT(host.sleeps(), 1000u);
}

TEST(RingHost, ConnectingHasAnEnd) {
  const std::string name = a_name();
  RingHost host(small);
  host.listen(name); // and never looks
  std::vector<Link> queue;
  EXPECT_THROW(for (int i = 0; i < 300; ++i)
                   queue.push_back(connect_to_ring(name, {}, milliseconds(20))),
               Error);
  EXPECT_GE(queue.size(), 128u);
}

TEST(RingHost, WhoSpeaksMakesRoomForAnother) {
  const std::string name = a_name();
  RingHost host(small);
  host.set_hello_limit(seconds(60));
  host.listen(name);
  std::vector<Link> mute;
  for (uint32_t i = 0; i < RingHost::max_silent; ++i)
    mute.push_back(connect_to_ring(name));
  ASSERT_TRUE(wait_until(host, [&] { return host.silent() == RingHost::max_silent; }));
  auto late = joining(connect_to_ring(name));
  host.wait(milliseconds(20));
  EXPECT_EQ(host.joined(), 0u);
  auto early = joining(std::move(mute.front()));
  EXPECT_TRUE(wait_until(host, [&] { return host.joined() == 2; }));
  late.get();
  early.get();
}

TEST(RingHost, WhoHasSpokenInTimeIsHeardHoweverLateTheHostIs) {
  RingHost host(small);
  host.set_hello_limit(milliseconds(1));
  auto [host_end, worker_end] = make_link();
  host.invite(std::move(host_end));
  auto joins = joining(std::move(worker_end));
  pollfd timer{.fd = -1, .events = 0, .revents = 0};
  poll(&timer, 1, 50); // both have happened by then
  EXPECT_TRUE(wait_until(host, [&] { return host.joined() == 1 || host.silent() == 0; }));
  EXPECT_EQ(host.joined(), 1u);
  joins.get();
}

TEST(RingHost, HavingNoFileDescriptorsLeftIsNoReasonToSpin) {
  const std::string name = a_name();
  const Child host_process([&](const Link &parent) {
    RingHost host(small);
    host.listen(name);
    parent.tell("listens");
    wait_until(host, [&] { return host.joined() == 1; });
    const int next = dup(0); // all below it are in use
    close(next);
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    parent.tell("has none left");
    parent.hear(seconds(5));
    const uint64_t sleeps = host.sleeps();
    host.wait(milliseconds(300));
    parent.tell(host.joined() == 1 && host.sleeps() - sleeps < 10 ? "sleeps" : "spins");
    wait_until(host, [&] { return host.workers() == 0; }); // that gives two back
    const auto begin = steady_clock::now();
    wait_until(host, [&] { return host.workers() == 1; });
    const auto waited = steady_clock::now() - begin;
    parent.tell(waited < milliseconds(500) ? "at once" : "late");
    parent.hear(seconds(5));
    host.wait(milliseconds(300));
    parent.tell(host.joined() == 2 ? "has none left" : "has some");
    setrlimit(RLIMIT_NOFILE, &limit); // nobody leaves; a second passes
    wait_until(host, [&] { return host.workers() == 2; });
    parent.tell(host.workers() == 2 ? "has room" : "has none left");
    parent.has_spoken(seconds(60));
  });
  const Link &link = host_process.link();
  EXPECT_EQ(link.hear(seconds(5)), "listens");
  auto first = std::make_unique<RingWorker>(connect_to_ring(name));
  EXPECT_EQ(link.hear(seconds(5)), "has none left");
  auto second = joining(connect_to_ring(name));
  link.tell("go on");
  EXPECT_EQ(link.hear(seconds(5)), "sleeps");
  first.reset();
  EXPECT_EQ(link.hear(seconds(25)), "at once");
  const auto second_worker = second.get();
  auto third = joining(connect_to_ring(name));
  link.tell("go on");
  EXPECT_EQ(link.hear(seconds(5)), "has none left");
  EXPECT_EQ(link.hear(seconds(25)), "has room");
  third.get();
}

} // namespace

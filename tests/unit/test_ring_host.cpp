// SPDX-License-Identifier: MIT
// Who takes part in a slot ring: children and strangers, how they are waited for, and what happens
// when they die.
#include "ring_host_fixture.hpp"

#include <poll.h>

namespace {

TEST(RingHost, ChildrenAndStrangersJoinAndLeave) {
  const std::string name = a_name();
  RingHost host(small);
  host.listen(name);
  const auto send = [](Link link) {
    RingWorker worker(std::move(link));
    for (int i = 0; i < 1000; ++i) {
      auto claim = worker.claim(sizeof i, seconds(10));
      std::memcpy(claim.data().data(), &i, sizeof i);
      if (!claim.publish())
        throw std::runtime_error("not ours any more");
    }
  };
  const auto child = [&](bool by_name) {
    auto [host_end, worker_end] = make_link();
    auto result = std::make_unique<Child>([&, end = &worker_end](const Link &) {
      send(by_name ? connect_to_ring(name) : std::move(*end));
    });
    if (!by_name)
      host.invite(std::move(host_end));
    return result;
  };
  const auto a = child(false), b = child(true), c = child(true);
  std::map<uint32_t, int> seen;
  while (host.joined() < 3 || host.workers() > 0) {
    ASSERT_TRUE(host.wait(seconds(10)));
    for (SlotRun run; (run = host.ring().take()).count > 0; host.ring().give_back(run))
      for (uint32_t at = 0; at < run.count;) {
        const SlotMessage message = host.ring().message(run, at);
        int number = -1;
        ASSERT_EQ(message.data.size(), sizeof number);
        std::memcpy(&number, message.data.data(), sizeof number);
        ASSERT_EQ(number, seen[message.worker]++);
      }
  }
  EXPECT_EQ(seen.size(), 3u);
  for (const auto &[worker, count] : seen)
    EXPECT_EQ(count, 1000) << worker;
  EXPECT_EQ(a->wait(seconds(5)) + b->wait(seconds(5)) + c->wait(seconds(5)), 0);
  EXPECT_FALSE(host.wait(milliseconds(1)));
}

TEST(RingHost, AWorkerThatIsKilledHoldsNobodyUp) {
  RingHost host(small);
  auto [host_end, worker_end] = make_link();
  Child victim([end = &worker_end](const Link &parent) {
    RingWorker worker(std::move(*end));
    const auto claim = worker.claim(200, seconds(5));
    parent.tell("claimed");
    parent.has_spoken(seconds(60)); // until it is killed
  });
  worker_end = Link();
  host.invite(std::move(host_end));
  ASSERT_TRUE(host.wait(seconds(5)));
  EXPECT_EQ(victim.link().hear(seconds(5)), "claimed");
  EXPECT_TRUE(host.ring().try_claim(999, 1)->publish());
  EXPECT_EQ(host.ring().take().count, 0u);
  kill(victim.pid(), SIGKILL);
  const auto begin = steady_clock::now();
  EXPECT_TRUE(host.wait(seconds(5)));
  EXPECT_EQ(host.ring().take().count, 1u);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(100));
  EXPECT_EQ(host.reclaimed(), 4u);
}

TEST(RingHost, AWorkerSeesThatTheHostIsGone) {
  auto [host_end, worker_end] = make_link();
  auto host = std::make_unique<RingHost>(RingShape{.slots = 2, .slot_size = 64});
  host->invite(std::move(host_end));
  std::thread waits([&] { host->wait(seconds(5)); });
  RingWorker worker(std::move(worker_end));
  waits.join();
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(worker.claim(1, seconds(1)).publish());
  EXPECT_FALSE(worker.is_alone());
  host.reset();
  EXPECT_TRUE(worker.is_alone());
  const auto begin = steady_clock::now();
  EXPECT_THROW(worker.claim(1, seconds(60)), Error);
  EXPECT_LT(steady_clock::now() - begin, seconds(10));
}

TEST(RingHost, SeveralRingsHaveOneDoorbell) {
  EXPECT_THROW(RingHost(small, 0), Error);
  EXPECT_THROW(RingHost(small, RingHost::max_rings + 1), Error);
  for (const uint32_t rings : {2U, RingHost::max_rings}) {
    RingHost host(small, rings);
    ASSERT_EQ(host.rings(), rings);
    const auto child = joiner(host, [](RingWorker &worker, const Link &parent) {
      parent.tell(std::to_string(worker.rings()));
      for (uint32_t i = worker.rings(); i-- > 0;) {
        auto claim = worker.claim(sizeof i, seconds(5), i);
        std::memcpy(claim.data().data(), &i, sizeof i);
        if (!claim.publish())
          throw std::runtime_error("not ours any more");
        parent.hear(seconds(5));
      }
      const auto claim = worker.claim(100, seconds(5), worker.rings() - 1);
      parent.tell("claimed");
      parent.has_spoken(seconds(60)); // until it is killed
    });
    ASSERT_TRUE(wait_until(host, [&] { return host.joined() == 1; }));
    EXPECT_EQ(child->link().hear(seconds(5)), std::to_string(rings));
    for (uint32_t i = rings; i-- > 0;) {
      ASSERT_TRUE(host.wait(seconds(5)));
      for (uint32_t other = 0; other < rings; ++other) {
        const SlotRun run = host.ring(other).take();
        ASSERT_EQ(run.count, other == i ? 1u : 0u) << other;
        if (other != i)
          continue;
        uint32_t at = 0, text;
        std::memcpy(&text, host.ring(i).message(run, at).data.data(), sizeof text);
        EXPECT_EQ(text, i);
        host.ring(i).give_back(run);
      }
      child->link().tell("next");
    }
    EXPECT_EQ(child->link().hear(seconds(5)), "claimed");
    kill(child->pid(), SIGKILL);
    EXPECT_TRUE(wait_until(host, [&] { return host.workers() == 0; }));
    EXPECT_EQ(host.reclaimed(), 2u);
    EXPECT_THROW(host.ring(rings), std::out_of_range);
  }
}

// A program that becomes a daemon closes all its descriptors, and with them the link. It has the
// memory still, so it has not left.
TEST(RingHost, AWorkerThatClosesItsLinkHasNotLeft) {
  RingHost host(small);
  const auto child = joiner(host, [](RingWorker &worker, const Link &parent) {
    for (int fd = STDERR_FILENO + 1; fd < 1024; ++fd)
      if (fd != parent.fd())
        close(fd);
    parent.tell("closed");
    parent.hear(seconds(60));
    const auto claim = worker.ring().claim(worker.number(), 100, seconds(5));
    parent.tell("claimed");
    parent.has_spoken(seconds(60)); // until it is killed
  });
  ASSERT_TRUE(wait_until(host, [&] { return host.joined() == 1; }));
  EXPECT_EQ(child->link().hear(seconds(60)), "closed");
  for (int i = 0; i < 3; ++i) // what has happened has been heard of then
    host.handle_events();
  EXPECT_EQ(host.workers(), 1u);
  child->link().tell("claim");
  EXPECT_EQ(child->link().hear(seconds(60)), "claimed");
  kill(child->pid(), SIGKILL);
  EXPECT_TRUE(wait_until(host, [&] { return host.workers() == 0; }));
  EXPECT_EQ(host.reclaimed(), 2u);
}

// The parent has joined, and a child that it has forked ends with the parent's objects.
TEST(RingHost, AChildOfAWorkerDoesNotSayGoodbye) {
  RingHost host(small);
  const auto worker = joiner(host, [](RingWorker &joined, const Link &parent) {
    {
      auto copy = std::make_unique<Child>([&](const Link &) { joined.~RingWorker(); });
      copy->wait(seconds(60));
    }
    parent.tell("ended");
    parent.hear(seconds(60));
  });
  ASSERT_TRUE(wait_until(host, [&] { return host.joined() == 1; }));
  EXPECT_EQ(worker->link().hear(seconds(60)), "ended");
  for (int i = 0; i < 3; ++i) // what has happened has been heard of then
    host.handle_events();
  EXPECT_EQ(host.workers(), 1u);
  worker->link().tell("leave");
  EXPECT_TRUE(wait_until(host, [&] { return host.workers() == 0; }));
}

// Another thread has the rings of the second doorbell: what the host does with its own leaves them
// alone.
TEST(RingHost, EachDoorbellHasItsRings) {
  EXPECT_THROW(RingHost(small, 2, 8, 0), Error);
  EXPECT_THROW(RingHost(small, 2, 8, 3), Error);
  RingHost host(small, 3, 8, 2);
  const auto child = joiner(host, [](RingWorker &worker, const Link &parent) {
    for (uint32_t ring = 0; ring < 3; ++ring) {
      parent.hear(seconds(60));
      if (!worker.claim(1, seconds(5), ring).publish())
        throw std::runtime_error("not ours any more");
      parent.tell("published");
    }
    const auto first = worker.claim(100, seconds(5), 0), second = worker.claim(100, seconds(5), 1),
               third = worker.claim(100, seconds(5), 2);
    parent.tell("claimed");
    parent.has_spoken(seconds(60)); // until it is killed
  });
  ASSERT_TRUE(wait_until(host, [&] { return host.joined() == 1; }));
  const auto has_rung = [&](uint32_t doorbell) {
    uint64_t count = 0;
    return read(host.doorbell(doorbell), &count, sizeof count) > 0;
  };
  for (uint32_t ring = 0; ring < 3; ++ring) {
    ASSERT_TRUE(host.ring(1).arm());
    host.handle_events();
    ASSERT_TRUE(host.arm());
    child->link().tell("go on");
    EXPECT_EQ(child->link().hear(seconds(5)), "published");
    EXPECT_EQ(has_rung(0), ring != 1) << ring;
    EXPECT_EQ(has_rung(1), ring == 1) << ring;
    EXPECT_EQ(host.arm(), ring == 1) << ring;
    host.handle_events();
    host.ring(ring).give_back(host.ring(ring).take());
  }
  EXPECT_EQ(child->link().hear(seconds(5)), "claimed");
  kill(child->pid(), SIGKILL);
  EXPECT_TRUE(wait_until(host, [&] { return host.workers() == 0; }));
  EXPECT_EQ(host.reclaimed(), 4u); // of two rings
  EXPECT_EQ(host.ring(1).reclaim(1), 2u);
}

// What a host says that is no host of this library.

TEST(RingHost, AnEventLoopOfItsOwnWatchesIt) {
  RingHost host(small, 2);
  std::vector<uint32_t> left;
  host.on_leave([&](uint32_t worker) {
    left.push_back(worker);
    EXPECT_EQ(host.reclaimed(), 2u); // before this
  });
  const auto is_readable = [&](int limit) {
    pollfd watched{.fd = host.fd(), .events = POLLIN, .revents = 0};
    return poll(&watched, 1, limit) == 1;
  };
  EXPECT_TRUE(host.arm());
  EXPECT_FALSE(is_readable(0));
  const auto child = joiner(host, [](RingWorker &worker, const Link &parent) {
    parent.hear(seconds(5));
    if (!worker.claim(1, seconds(5), 1).publish())
      throw std::runtime_error("not ours any more");
    const auto claim = worker.claim(100, seconds(5));
    parent.tell("claimed");
    parent.has_spoken(seconds(60));
  });
  EXPECT_TRUE(is_readable(5000));
  host.handle_events();
  EXPECT_EQ(host.joined(), 1u);
  EXPECT_FALSE(is_readable(0));

  EXPECT_TRUE(host.arm());
  child->link().tell("begin");
  EXPECT_TRUE(is_readable(5000));
  EXPECT_FALSE(host.arm()); // something is ready
  host.handle_events();
  EXPECT_EQ(host.ring(1).take().count, 1u);
  EXPECT_EQ(child->link().hear(seconds(5)), "claimed");
  EXPECT_TRUE(host.arm());
  host.handle_events();
  EXPECT_FALSE(is_readable(0)); // the doorbell's count is gone

  kill(child->pid(), SIGKILL);
  while (host.workers() > 0 && is_readable(5000)) // its link closes before it has ended
    host.handle_events();
  EXPECT_EQ(left, std::vector<uint32_t>{1});
  EXPECT_EQ(host.workers(), 0u);
  EXPECT_FALSE(is_readable(0));
}

TEST(RingHost, AnotherMayBeInvitedWhenOneHasLeft) {
  RingHost host(small, 1, 1); // so that it gets the same number
  std::vector<std::unique_ptr<Child>> children;
  uint32_t left = 0;
  const auto start = [&] {
    children.push_back(
        joiner(host, [](RingWorker &, const Link &parent) { parent.has_spoken(seconds(60)); }));
  };
  host.on_leave([&](uint32_t) {
    if (++left < 3)
      start();
  });
  start();
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(wait_until(host, [&] { return host.joined() == i + 1; }));
    children.back()->kill(); // its link and its pidfd speak at once
    ASSERT_TRUE(wait_until(host, [&] { return left == i + 1; }));
  }
}

} // namespace

// SPDX-License-Identifier: MIT
// Poll, arm, poll: with a CQ of the test's own, in which things happen at the worst moment.
#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/requests.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <poll.h>
#include <string>
#include <unistd.h>

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

// A CQ, its channel and its device, as verbs.h calls them. A pipe stands for the channel's file.
struct FakeCq {
  FakeCq() {
    EXPECT_EQ(pipe(pipe_.data()), 0);
    channel.fd = pipe_[0];
    context.ops.poll_cq = [](ibv_cq *cq, int room, ibv_wc *into) {
      return of(cq).poll(room, into);
    };
    context.ops.req_notify_cq = [](ibv_cq *cq, int) { return of(cq).arm(); };
    cq.context = &context;
    cq.channel = &channel;
    cq.cq_context = this;
  }
  ~FakeCq() {
    close(pipe_[0]);
    close(pipe_[1]);
  }
  FakeCq(const FakeCq &) = delete;
  FakeCq &operator=(const FakeCq &) = delete;

  static FakeCq &of(ibv_cq *cq) { return *static_cast<FakeCq *>(cq->cq_context); }

  // As on SoftRoCE: a completion raises an event only if the CQ is armed when it comes.
  void complete(int how_many) {
    completions += how_many;
    if (armed && how_many > 0)
      event();
  }
  void event() {
    armed = false;
    EXPECT_EQ(write(pipe_[1], "e", 1), 1);
  }
  int poll(int room, ibv_wc *into) {
    const int count = std::min(room, completions);
    said += "poll " + std::to_string(count) + " ";
    for (int i = 0; i < count; ++i)
      into[i].wr_id = taken++;
    completions -= count;
    return fails ? -1 : count;
  }
  int arm() {
    said += "arm ";
    complete(before_arming); // armed is still false: the event is lost
    before_arming = 0;
    armed = true;
    complete(after_arming);
    after_arming = 0;
    return 0;
  }

  ibv_context context{};
  ibv_comp_channel channel{};
  ibv_cq cq{};
  int completions = 0, before_arming = 0, after_arming = 0;
  unsigned acknowledged = 0;
  uint64_t taken = 0;
  bool armed = false, fails = false;
  std::string said; // calls that were made, and their results

private:
  std::array<int, 2> pipe_{};
};

FakeCq *events_of = nullptr; // the CQ whose event ibv_get_cq_event() finds

std::string failure(FakeCq &fake, std::span<ibv_wc> into) {
  try {
    wait_for_completions(&fake.cq, into, "a receive", milliseconds(20));
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

} // namespace

// In place of libibverbs', whose provider does not know the fake. The file does not block, as the
// contract says.
extern "C" int ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **) {
  char event = 0;
  events_of->said += "take ";
  pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  if (read(channel->fd, &event, 1) != 1)
    return -1;
  *cq = &events_of->cq;
  return 0;
}

extern "C" void ibv_ack_cq_events(ibv_cq *cq, unsigned count) {
  FakeCq::of(cq).acknowledged += count;
}

namespace {

class Completions : public testing::Test {
protected:
  Completions() { events_of = &fake; }
  size_t wait() { return wait_for_completions(&fake.cq, into, "a receive", milliseconds(1000)); }

  FakeCq fake;
  std::array<ibv_wc, 4> into{};
};

TEST_F(Completions, WhatIsThereNeedsNoArming) {
  fake.completions = 3;
  EXPECT_EQ(wait(), 3U);
  EXPECT_EQ(fake.said, "poll 3 ");
}

TEST_F(Completions, NoMoreThanThereIsRoomFor) {
  fake.completions = 6;
  EXPECT_EQ(wait(), 4U);
  EXPECT_EQ(wait(), 2U);
  EXPECT_EQ(into[1].wr_id, 5U);
}

TEST_F(Completions, WhatComesBeforeTheArmingIsNotMissed) {
  fake.before_arming = 1;
  EXPECT_EQ(wait(), 1U);
  EXPECT_EQ(fake.said, "poll 0 arm poll 1 ")
      << "it has not slept, or it would have looked for events";
}

TEST_F(Completions, WhatComesAfterTheArmingIsThereAtOnce) {
  fake.after_arming = 1;
  EXPECT_EQ(wait(), 1U);
  EXPECT_EQ(fake.acknowledged, 0U); // its event is still in the channel
  fake.said.clear();
  EXPECT_NE(failure(fake, into).find("a receive: no completion within 20 ms"), std::string::npos);
  EXPECT_EQ(fake.acknowledged, 1U) << "an event without a completion ends nothing";
}

TEST_F(Completions, AnEventEndsTheSleep) {
  fake.context.ops.req_notify_cq = [](ibv_cq *cq, int) {
    FakeCq &its = FakeCq::of(cq);
    if (its.said == "poll 0 ")
      its.event(); // found by the sleep, not by the second poll
    else
      its.completions = 1;
    its.said += "arm ";
    return 0;
  };
  EXPECT_EQ(wait(), 1U);
  EXPECT_EQ(fake.said, "poll 0 arm poll 0 take take poll 0 arm poll 1 ");
  EXPECT_EQ(fake.acknowledged, 1U);
}

TEST_F(Completions, EveryEventIsAcknowledged) {
  fake.event();
  fake.event();
  EXPECT_EQ(take_event(&fake.channel), &fake.cq);
  EXPECT_EQ(take_event(&fake.channel), &fake.cq);
  EXPECT_EQ(take_event(&fake.channel), nullptr);
  EXPECT_EQ(fake.acknowledged, 2U);
}

TEST_F(Completions, WhatCannotBeIsRefused) {
  EXPECT_NE(failure(fake, {}).find("no room for a completion"), std::string::npos);
  fake.fails = true;
  EXPECT_NE(failure(fake, into).find("ibv_poll_cq"), std::string::npos);
  fake.fails = false;
  fake.cq.channel = nullptr;
  EXPECT_NE(failure(fake, into).find("without a completion channel"), std::string::npos);
}

// After 10 ms, each poll is followed by a sleep of a millisecond, or longer on a busy machine.
TEST_F(Completions, ALongWaitLeavesTheProcessorToOthers) {
  using Clock = std::chrono::steady_clock;
  static std::optional<Clock::time_point> late;
  static int late_polls;
  late.reset();
  late_polls = 0;
  fake.context.ops.poll_cq = [](ibv_cq *, int, ibv_wc *) {
    const auto now = Clock::now();
    late_polls += now >= late.value_or(now + milliseconds(1));
    late = late.value_or(now + milliseconds(10));
    return 0;
  };
  EXPECT_EQ(poll_within(&fake.cq, milliseconds(120)).has_value(), false);
  EXPECT_GT(late_polls, 0);
  EXPECT_LE(late_polls, 112);
}

} // namespace

// SPDX-License-Identifier: MIT
// The processes that join a sender, and how it notices that one has gone.
#include "members_fixture.hpp"

namespace {

TEST(Members, JoinByLinkAndByNameOneAfterTheOther) {
  Process first, second, third;
  FakeThread thread;
  const std::string name = a_name();
  Members members(small, {thread.callbacks()}, name, {});
  EXPECT_EQ(first.join_by_link(members), "joined 0");
  EXPECT_EQ(second.join_by_name(name), "joined 1");
  EXPECT_EQ(third.join_by_link(members), "joined 2");
  const Joined here = join_here(members);
  EXPECT_EQ(here.number, 3U);
  EXPECT_TRUE(thread.wait_for_joined(4));
  EXPECT_EQ(thread.joined(), (std::vector<uint32_t>{0, 1, 2, 3}));
  for (Process *each : {&first, &second, &third})
    EXPECT_EQ(each->ask("alone?"), "not alone");
  EXPECT_FALSE(here.sender_has_gone());
  EXPECT_TRUE(thread.left().empty());
}

TEST(Members, EachHasWhatItsSenderHas) {
  Process one, other;
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  EXPECT_EQ(one.join_by_link(members), "joined 0");
  EXPECT_EQ(other.join_by_link(members), "joined 1");
  ASSERT_TRUE(thread.wait_for_joined(2));
  const Member its = thread.member(0), others = thread.member(1);
  EXPECT_EQ(its.area->shape(), small);
  EXPECT_EQ(one.ask("submit"), "done");
  EXPECT_TRUE(is_readable(its.doorbell->fd(), soon));
  EXPECT_EQ(its.area->submitted().load(), 42U);
  EXPECT_EQ(others.area->submitted().load(), 0U); // another area
  EXPECT_FALSE(is_readable(others.doorbell->fd()));
  EXPECT_EQ(other.ask("event?"), "silent");
  others.event->ring();
  EXPECT_EQ(other.ask("wait for event"), "rung");
  EXPECT_EQ(one.ask("event?"), "silent");
  thread.board->is_asleep = 7;
  EXPECT_EQ((*join_here(members).board)->is_asleep.load(), 7U);
}

// A worker can change the flags of an open file for each process that has it.
TEST(Members, AWorkerCannotMakeItsEventBlock) {
  Process worker;
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  EXPECT_EQ(worker.join_by_link(members), "joined 0");
  ASSERT_TRUE(thread.wait_for_joined(1));
  worker.ask("make the event block");
  const Member its = thread.member(0);
  for (int i = 0; i < 10'000; ++i) // as often as a worker asks, and never reads
    its.event->ring();             // if it blocks, the test's time limit ends it
  EXPECT_EQ(worker.ask("event?"), "rung");
}

TEST(Members, AKilledProcessHasLeft) {
  Process first, second;
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  EXPECT_EQ(first.join_by_link(members), "joined 0");
  EXPECT_EQ(second.join_by_link(members), "joined 1");
  first.kill();
  EXPECT_TRUE(thread.wait_for_left(1));
  EXPECT_EQ(thread.left(), std::vector<uint32_t>{0});
  EXPECT_EQ(second.ask("alone?"), "not alone");
}

// Then its link stays open, and only the pidfd tells.
TEST(Members, AKilledProcessHasLeftAlsoIfItsChildHasItsLink) {
  Process first, second;
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  EXPECT_EQ(first.join_by_link(members), "joined 0");
  EXPECT_EQ(second.join_by_link(members), "joined 1");
  EXPECT_EQ(first.ask("hold"), "done");
  first.kill();
  EXPECT_TRUE(thread.wait_for_left(1));
  EXPECT_EQ(thread.left(), std::vector<uint32_t>{0});
  EXPECT_EQ(second.ask("alone?"), "not alone");
}

TEST(Members, LeaveByThemselves) {
  Process process;
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  EXPECT_EQ(process.join_by_link(members), "joined 0");
  EXPECT_EQ(process.ask("leave"), "done");
  EXPECT_TRUE(thread.wait_for_left(1));
  { const Joined here = join_here(members); }
  EXPECT_TRUE(thread.wait_for_left(2));
  EXPECT_EQ(thread.left(), (std::vector<uint32_t>{0, 1}));
}

TEST(Members, OneThatGoesOnTalkingHasToLeave) {
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  const Joined here = join_here(members);
  here.link.send("and another thing");
  EXPECT_TRUE(thread.wait_for_left(1));
  EXPECT_TRUE(becomes_alone(here));
}

TEST(Members, CanBeDropped) {
  Process process;
  std::array<FakeThread, 2> threads;
  Members members(small, {threads[0].callbacks(), threads[1].callbacks()}, {}, {});
  EXPECT_EQ(process.join_by_link(members), "joined 0");
  const Joined other = join_here(members); // the first one, too, of the other thread
  EXPECT_EQ(other.number, 0U);
  members.drop(0, 5); // there is none
  members.drop(1, 0);
  EXPECT_TRUE(threads[1].wait_for_left(1));
  EXPECT_TRUE(becomes_alone(other));
  EXPECT_EQ(process.ask("alone?"), "not alone");
  members.drop(1, 0); // it has left already
  members.drop(0, 0);
  EXPECT_TRUE(threads[0].wait_for_left(1));
  EXPECT_EQ(process.ask("wait until alone"), "alone");
  EXPECT_EQ(threads[1].left().size(), 1U);
}

TEST(Members, ANumberIsGivenAgainOnceItIsFree) {
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  auto first = std::make_unique<Joined>(join_here(members));
  const Joined second = join_here(members);
  EXPECT_EQ(first->number, 0U);
  EXPECT_EQ(second.number, 1U);
  first.reset();
  ASSERT_TRUE(thread.wait_for_left(1));
  const Joined third = join_here(members);
  EXPECT_EQ(third.number, 2U); // answers for the first may still come
  members.is_free(0, 0);
  const Joined fourth = join_here(members);
  EXPECT_EQ(fourth.number, 0U);
  EXPECT_FALSE(second.sender_has_gone());
  EXPECT_FALSE(third.sender_has_gone());
  EXPECT_FALSE(fourth.sender_has_gone());
}

TEST(Members, AreAsManyAsCanBe) {
  FakeThread thread(false);
  Members members(small, {thread.callbacks()}, {}, {});
  for (uint32_t i = 0; i < max_workers; ++i)
    ASSERT_EQ(join_here(members).number, i);
  EXPECT_THROW(join_here(members), Error);
  ASSERT_TRUE(thread.wait_for_left(max_workers));
  EXPECT_THROW(join_here(members), Error); // all have left, and nobody has said that they are free
  members.is_free(0, 1000);
  EXPECT_EQ(join_here(members).number, 1000U);
}

TEST(Members, AreDividedAmongTheHosts) {
  std::array<FakeThread, 3> threads;
  Members members(small, {threads[0].callbacks(), threads[1].callbacks(), threads[2].callbacks()},
                  {}, {});
  std::vector<Joined> here;
  for (int i = 0; i < 6; ++i)
    here.push_back(join_here(members));
  for (FakeThread &thread : threads) {
    EXPECT_TRUE(thread.wait_for_joined(2));
    EXPECT_EQ(thread.joined(), (std::vector<uint32_t>{0, 1}));
  }
  members.drop(1, 0);
  ASSERT_TRUE(threads[1].wait_for_left(1));
  members.is_free(1, 0);
  here.push_back(join_here(members)); // joins the thread that has the fewest now
  EXPECT_TRUE(threads[1].wait_for_joined(3));
  EXPECT_EQ(threads[1].joined().back(), 0U);
  EXPECT_EQ(threads[0].joined().size(), 2U);
  EXPECT_EQ(threads[2].joined().size(), 2U);
}

TEST(Members, ANameBelongsToOneSender) {
  FakeThread thread;
  const std::string name = a_name();
  const auto where = rdmacommon::Where::here();
  EXPECT_THROW(connect_to(name, soon, where), Error); // nobody listens
  {
    const Members members(small, {thread.callbacks()}, name, {});
    EXPECT_THROW(Members(small, {thread.callbacks()}, name, {}), Error);
    EXPECT_EQ(join(connect_to(name, soon, where), soon).number, 0U);
  }
  EXPECT_THROW(connect_to(name, soon, where), Error);
  const Members again(small, {thread.callbacks()}, name, {}); // the name is free again
  EXPECT_EQ(join(connect_to(name, soon, where), soon).number, 0U);
  EXPECT_THROW(connect_to("", soon, where), Error);
  EXPECT_THROW(connect_to(std::string(108, 'x'), soon, where), Error);
  EXPECT_THROW(Members(small, {thread.callbacks()}, std::string(108, 'x'), {}), Error);
  const std::string longest = name + std::string(107 - name.size(), 'x');
  const Members with_long_name(small, {thread.callbacks()}, longest, {});
  EXPECT_EQ(join(connect_to(longest, soon, where), soon).number, 0U);
}

} // namespace

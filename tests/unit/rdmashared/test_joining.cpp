// SPDX-License-Identifier: MIT
// Processes that connect to a sender and say nothing, or something else, or may not join.
#include "members_fixture.hpp"

#include <grp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <future>

namespace {

const auto where = rdmacommon::Where::here();

// Says something at the thread, and waits until it is sent away.
void say(Members &members, const std::string &text, const std::vector<int> &files) {
  auto [mine, theirs] = make_link();
  members.invite(std::move(mine));
  theirs.send(text, files);
  EXPECT_THROW(theirs.receive(soon), Error) << text << " with " << files.size();
  EXPECT_TRUE(is_readable(theirs.fd())) << "nobody has sent it away";
}

TEST(Processes, StrangersAreSentAway) {
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  const Event event;
  say(members, "rdmashared 2", {event.fd()});
  say(members, "rdmashared 1 ", {event.fd()});
  say(members, "rdmashared", {event.fd()});
  say(members, std::string(Link::longest, 'x'), {});
  say(members, "rdmashared 1", {});
  say(members, "rdmashared 1", {event.fd(), event.fd()});
  say(members, "rdmashared 1", std::vector<int>(Link::max_files, event.fd()));
  EXPECT_EQ(join_here(members).number, 0U);
  EXPECT_TRUE(thread.wait_for_joined(1)); // nobody else has
  EXPECT_TRUE(thread.wait_for_left(1));
}

TEST(Processes, OneThatHangsUpIsForgotten) {
  FakeThread thread;
  const std::string name = a_name();
  Members members(small, {thread.callbacks()}, name, {});
  for (int i = 0; i < 300; ++i) { // more than may be silent
    auto [mine, theirs] = make_link();
    theirs = Link();
    members.invite(std::move(mine));
    const Link hangs_up = connect_to(name, soon, where);
  }
  EXPECT_EQ(join(connect_to(name, soon, where), soon).number, 0U);
}

TEST(Processes, NoLinkAtAllDoesNoHarm) {
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  members.invite(Link());
  EXPECT_EQ(join_here(members).number, 0U);
}

// A process sends a file that stands for its process. A file of another kind would never tell that
// the process has ended.
TEST(Processes, AFileThatIsNoProcess) {
  Process victim;
  const Child ended([](const Link &) {});
  FakeThread thread;
  Members members(small, {thread.callbacks()}, {}, {});
  const File regular(memfd_create("test", MFD_CLOEXEC));
  const Event event;
  for (const int fd : {regular.get(), event.fd()})
    say(members, "rdmashared 1", {fd});
  EXPECT_TRUE(thread.joined().empty());
  EXPECT_EQ(victim.join_by_link(members), "joined 0");
  victim.kill(); // its link and its process tell at the same time
  EXPECT_TRUE(thread.wait_for_left(1));
  EXPECT_TRUE(is_readable(ended.pidfd(), soon)); // the process has ended already
  auto [mine, theirs] = make_link();
  members.invite(std::move(mine));
  theirs.send("rdmashared 1", std::array{ended.pidfd()});
  EXPECT_TRUE(thread.wait_for_left(2));
  EXPECT_TRUE(thread.wait_for_joined(2));
}

// ---- silence

std::vector<Link> come_and_say_nothing(const std::string &name, uint32_t count) {
  std::vector<Link> silent;
  for (uint32_t i = 0; i < count; ++i)
    silent.push_back(connect_to(name, soon, where));
  return silent;
}

TEST(Processes, TheSilentOnesAreForgottenAfterTheirTime) {
  FakeThread thread;
  const std::string name = a_name();
  Members members(small, {thread.callbacks()}, name, {});
  auto [invited, theirs] = make_link();
  const auto begin = Clock::now();
  members.invite(std::move(invited));
  EXPECT_THROW(theirs.receive(soon), Error);
  EXPECT_GE(Clock::now() - begin, Members::hello_limit);
  EXPECT_TRUE(is_readable(theirs.fd())); // and that was the sender
  EXPECT_EQ(join(connect_to(name, soon, where), soon).number, 0U);
}

TEST(Processes, OnlySoManyMayBeSilent) {
  FakeThread thread;
  const std::string name = a_name();
  Members members(small, {thread.callbacks()}, name, {});
  const auto begin = Clock::now();
  const auto silent = come_and_say_nothing(name, Members::max_half_open);
  auto late = std::async(std::launch::async, [link = connect_to(name, soon, where)]() mutable {
    return join(std::move(link), soon).number;
  });
  // It waits in the queue. Then nobody else gets into that, and connecting has an end.
  std::vector<Link> queue;
  EXPECT_THROW(for (int i = 0; i < 1000; ++i)
                   queue.push_back(connect_to(name, milliseconds(1), where)),
               Error);
  join_here(members); // the invited ones do not wait
  late.get();
  EXPECT_GE(Clock::now() - begin, Members::hello_limit); // once the silent ones are forgotten
  for (const Link &link : silent)
    EXPECT_THROW(link.receive(soon), Error);
}

// @return false if the machine was so busy that the time of the silent ones was over
bool one_that_speaks_makes_room() {
  FakeThread thread(false);
  const std::string name = a_name();
  Members members(small, {thread.callbacks()}, name, {});
  auto silent = come_and_say_nothing(name, Members::max_half_open);
  const Link late = connect_to(name, soon, where);
  const File process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  late.send("rdmashared 1", std::array{process.get()});
  // The thread of Members looks at its listener at least once for each of these.
  constexpr uint32_t invited = Members::max_half_open + 10;
  bool only_they_have = true; // nobody is free again, so the numbers tell how many have joined
  for (uint32_t i = 0; i < invited; ++i)
    only_they_have &= join_here(members).number == i;
  // Each that leaves lets it look there again, too; from here on none does.
  EXPECT_TRUE(thread.wait_for_left(invited));
  const Joined last = join_here(members);
  only_they_have &= last.number == invited;
  const Link early = std::move(silent.back());
  silent.pop_back();
  early.send("rdmashared 1", std::array{process.get()});
  EXPECT_TRUE(is_readable(late.fd(), soon));
  return only_they_have &&
         std::ranges::none_of(silent, [](const Link &each) { return is_readable(each.fd()); });
}

TEST(Processes, OneThatSpeaksMakesRoomForAnother) {
  bool has = false;
  for (int attempt = 0; attempt < 5 && !has; ++attempt)
    has = one_that_speaks_makes_room();
  EXPECT_TRUE(has);
}

// ---- other users

// Somebody who wants to join, once it is told where.
class Stranger {
public:
  Stranger(uid_t user, const std::vector<gid_t> &groups)
      : child_([&](const Link &test) {
          const std::string name = test.receive(std::chrono::hours(1));
          rdmacommon::check_errno(setgroups(groups.size(), groups.data()), "setgroups");
          rdmacommon::check_errno(setgid(user), "setgid");
          rdmacommon::check_errno(setuid(user), "setuid");
          std::string said = "sent away";
          try {
            said = "joined " + std::to_string(join(connect_to(name, soon, where), soon).number);
          } catch (const Error &) {
          }
          test.send(said);
        }) {}
  std::string join_by_name(const std::string &name) {
    child_.link().send(name);
    return child_.link().receive(soon);
  }

private:
  Child child_;
};

TEST(Processes, AnotherUserNeedsTheGroup) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can become somebody else";
  constexpr uid_t other = 65534;
  std::vector<gid_t> many; // more than there is room for at first
  for (gid_t i = 0; i < 100; ++i)
    many.push_back(20'000 + i);
  Stranger for_closed(other, many), of_none(other, {}), of_another(other, {20'098}),
      of_it(other, {20'099}), of_many(other, many), of_it_first(20'099, {}), same_user(0, {});
  FakeThread thread;
  const std::string closed = a_name(), open = a_name();
  const Members for_nobody(small, {thread.callbacks()}, closed, {});
  const Members for_a_group(small, {thread.callbacks()}, open, gid_t{20'099});
  EXPECT_EQ(for_closed.join_by_name(closed), "sent away");
  EXPECT_EQ(of_none.join_by_name(open), "sent away");
  EXPECT_EQ(of_another.join_by_name(open), "sent away");
  EXPECT_EQ(of_it.join_by_name(open), "joined 0");
  EXPECT_EQ(of_many.join_by_name(open), "joined 1");
  EXPECT_EQ(of_it_first.join_by_name(open), "joined 2");
  EXPECT_EQ(same_user.join_by_name(closed), "joined 0");
}

} // namespace

// SPDX-License-Identifier: MIT
// A worker's side of joining: the answers that it takes, and how it notices the sender's end.
#include "members_fixture.hpp"

#include <rdmashared/caller.hpp>

#include <sys/mman.h>

namespace {

// Returns true if a worker takes this text and these files for an answer.
bool joins(const std::string &text, const std::vector<int> &files) {
  auto [sender, worker] = make_link();
  sender.send(text, files);
  try {
    const Joined joined = join(std::move(worker), soon);
    return true;
  } catch (const Error &) {
    return false;
  }
}

TEST(Joined, BelievesNoAnswerThatCannotBe) {
  const OwnBoard board(1);
  const File area = Area::make(small);
  const Event event;
  const int pidfd = event.fd(), bell = event.fd();
  const std::vector<int> files = {pidfd, board.fd(), area.get(), bell, bell};
  EXPECT_TRUE(joins("rdmashared 1 worker 0", files));
  EXPECT_TRUE(joins("rdmashared 1 worker 1023", files));
  EXPECT_FALSE(joins("rdmashared 1 worker 1024", files));
  EXPECT_FALSE(joins("rdmashared 1 worker 4294967296", files));
  EXPECT_FALSE(joins("rdmashared 1 worker -1", files));
  EXPECT_FALSE(joins("rdmashared 1 worker ", files));
  EXPECT_FALSE(joins("rdmashared 1 worker x", files));
  EXPECT_FALSE(joins("rdmashared 1 worker 7 ", files));
  EXPECT_FALSE(joins("rdmashared 1 worker", files));
  EXPECT_FALSE(joins("rdmashared 2 worker 7", files));
  const std::string seven = "rdmashared 1 worker 7";
  EXPECT_FALSE(joins(seven, {}));
  EXPECT_FALSE(joins(seven, {pidfd, board.fd(), area.get(), bell}));
  EXPECT_FALSE(joins(seven, {pidfd, board.fd(), area.get(), bell, bell, bell}));
  EXPECT_FALSE(joins(seven, {pidfd, area.get(), board.fd(), bell, bell}));
  EXPECT_FALSE(joins(seven, {pidfd, board.fd(), bell, bell, bell}));
}

TEST(Joined, SaysHelloWithAFileAndHasALimit) {
  auto [sender, worker] = make_link();
  EXPECT_THROW(join(std::move(worker), milliseconds(1)), Error); // nobody answers
  std::vector<File> files;
  EXPECT_EQ(sender.receive(soon, files, 1), "rdmashared 1");
  EXPECT_FALSE(is_readable(files[0].get())); // it is of a process that lives
}

TEST(Joined, IsAloneWhenTheMembersGo) {
  FakeThread thread;
  auto members = std::make_unique<Members>(small, std::vector{thread.callbacks()}, std::string(),
                                           std::optional<gid_t>());
  const Joined here = join_here(*members);
  EXPECT_FALSE(here.sender_has_gone());
  EXPECT_FALSE(here.sender_has_gone());
  members.reset();
  EXPECT_TRUE(here.sender_has_gone());
  EXPECT_TRUE(thread.left().empty()); // nobody is told: the sender is about to go, too
}

// A sender in a process of its own.
class SenderProcess {
public:
  explicit SenderProcess(const std::string &name)
      : child_([&name](const Link &test) {
          FakeThread thread;
          const Members members(small, {thread.callbacks()}, name, {});
          test.send("listens");
          test.receive(std::chrono::hours(1));
          fork_holder(test);
          test.send("holds");
          test.can_receive(std::chrono::hours(1));
        }) {
    EXPECT_EQ(child_.link().receive(soon), "listens");
  }
  void hold() {
    child_.link().send("hold");
    EXPECT_EQ(child_.link().receive(soon), "holds");
  }
  void kill() { child_.kill(); }

private:
  Child child_;
};

TEST(Joined, IsAloneWhenTheSenderIsKilled) {
  const std::string name = a_name();
  SenderProcess sender(name);
  const Joined here = join(connect_to(name, soon, rdmacommon::Where::here()), soon);
  EXPECT_FALSE(here.sender_has_gone());
  sender.kill();
  EXPECT_TRUE(here.sender_has_gone());
}

TEST(Joined, IsAloneWhenTheSenderIsKilledAndAnotherProcessHasItsLinks) {
  const std::string name = a_name();
  SenderProcess sender(name);
  const Joined here = join(connect_to(name, soon, rdmacommon::Where::here()), soon);
  sender.hold();
  EXPECT_FALSE(here.sender_has_gone());
  sender.kill();
  EXPECT_FALSE(is_readable(here.link.fd())); // the link tells nothing
  EXPECT_TRUE(here.sender_has_gone());
}

// The board and the area stay while the worker has them, whatever has become of the sender.
TEST(Joined, HasItsMemoryAlsoWhenItIsAlone) {
  const std::string name = a_name();
  SenderProcess sender(name);
  const Joined here = join(connect_to(name, soon, rdmacommon::Where::here()), soon);
  sender.kill();
  EXPECT_EQ((*here.board)->servers, 1U);
  here.area->slots(0)[0] = std::byte{1};
  EXPECT_EQ(here.area->shape(), small);
}

constexpr AreaShape with_requests{
    .slots = 8, .slot_size = 64, .long_responses = 0, .largest = 0, .longest = 64};

Caller caller_of(Members &members) {
  auto [mine, theirs] = make_link();
  members.invite(std::move(mine));
  return Caller(std::move(theirs));
}

// The sender answers each request just after the caller has given it up, and takes no cancel. So
// each slot has the cancel of an answered request, and a new request with its cancel.
TEST(Joined, HasRoomForAllThatAWorkerCanSubmit) {
  FakeThread thread;
  Members members(with_requests, {thread.callbacks()}, {}, {});
  Caller caller = caller_of(members);
  ASSERT_TRUE(thread.wait_for_joined(1));
  const Area &area = *thread.member(0).area;
  std::vector<Pending> pending;
  const auto submit_all = [&] {
    while (auto one = caller.try_request_async({}))
      pending.push_back(std::move(*one));
    return area.submitted().load();
  };
  const uint32_t taken = submit_all();
  EXPECT_EQ(taken, small.slots);
  pending.clear(); // cancels them
  for (uint32_t slot = 0; slot < small.slots; ++slot)
    area.answer(slot).outcome = 1;
  submit_all();
  pending.clear();
  EXPECT_EQ(area.submitted() - taken, 3 * small.slots);
  EXPECT_LE(area.submitted() - taken, area.queue_length());
}

// The answer can come while a thread gives the request up. Then the sender's ring comes too early
// for a thread that waits for room: it looks, finds the slots in use, and sleeps again.
TEST(Joined, WakesThoseWhoWaitForRoomWhenARequestIsGivenUp) {
  FakeThread thread;
  Members members(with_requests, {thread.callbacks()}, {}, {});
  Caller caller = caller_of(members);
  ASSERT_TRUE(thread.wait_for_joined(1));
  const Area &area = *thread.member(0).area;
  Pending pending = caller.request_async({});
  const uint32_t before = area.room_bell();
  area.wants_room() = 1;
  pending.cancel();
  EXPECT_EQ(area.wants_room(), 0);
  EXPECT_NE(area.room_bell(), before);
}

} // namespace

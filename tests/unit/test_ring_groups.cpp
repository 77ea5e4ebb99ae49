// SPDX-License-Identifier: MIT
// Whose processes a ring admits: asked by processes of other users, so only root can test it.
#include <rdmacommon/ring_host.hpp>

#include <gtest/gtest.h>

#include <grp.h>
#include <unistd.h>

#include <string>
#include <vector>

using namespace rdmacommon;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

constexpr uid_t somebody = 54321;
constexpr gid_t ours = 54300, another = 54301;

// A process of another user, and what comes of its attempt to join.
struct Guest {
  uid_t uid;
  gid_t gid;
  std::vector<gid_t> groups;
  std::optional<uid_t> owner;
};

std::string outcome(RingHost &host, const std::string &name, const Guest &guest) {
  const Child child([&](const Link &parent) {
    check_errno(setgroups(guest.groups.size(), guest.groups.data()), "setgroups");
    check_errno(setresgid(guest.gid, guest.gid, guest.gid), "setresgid");
    check_errno(setresuid(guest.uid, guest.uid, guest.uid), "setresuid");
    std::string answer = "joined";
    try {
      Link link = connect_to_ring(name, guest.owner);
      answer = "sent away";
      RingWorker worker(std::move(link));
      answer = worker.claim(1, seconds(5)).publish() ? "joined" : "not let write";
    } catch (const Error &) {
      if (answer == "joined")
        answer = "did not trust the owner";
    }
    parent.tell(answer);
  });
  const auto deadline = steady_clock::now() + seconds(20);
  while (!child.link().has_spoken() && steady_clock::now() < deadline)
    host.wait(milliseconds(20));
  return child.link().hear(milliseconds(0));
}

struct RingGroups : testing::Test {
  RingHost host{{.slots = 16, .slot_size = 64}};
  std::string name = "test_ring_groups." + std::to_string(getpid());

  void SetUp() override {
    if (geteuid() != 0)
      GTEST_SKIP() << "only root can be other users";
    Child probe([](const Link &) { // a container may have no other users
      if (setgroups(1, &another) < 0 || setresgid(ours, ours, ours) < 0 ||
          setresuid(somebody, somebody, somebody) < 0)
        _exit(2);
    });
    if (probe.wait(seconds(20)) != 0)
      GTEST_SKIP() << "root cannot be other users here";
  }
};

TEST_F(RingGroups, ItsUserAloneIsAdmitted) {
  host.listen(name);
  EXPECT_EQ(outcome(host, name, {0, another, {}, {}}), "joined");
  EXPECT_EQ(outcome(host, name, {somebody, ours, {}, 0}), "sent away");
  EXPECT_EQ(outcome(host, name, {somebody, 0, {0, ours}, 0}), "sent away");
}

TEST_F(RingGroups, AGroupIsAdmittedIfItIsSaid) {
  host.listen(name, ours);
  EXPECT_EQ(outcome(host, name, {somebody, ours, {}, 0}), "joined");
  EXPECT_EQ(outcome(host, name, {somebody, another, {another, ours}, 0}), "joined");
  EXPECT_EQ(outcome(host, name, {0, another, {}, {}}), "joined");
  EXPECT_EQ(outcome(host, name, {somebody, another, {another}, 0}), "sent away");
  EXPECT_EQ(outcome(host, name, {somebody, 0, {}, 0}), "sent away");
  std::vector<gid_t> many; // more than are asked for at first
  for (gid_t group = 60'000; group < 60'100; ++group)
    many.push_back(group);
  EXPECT_EQ(outcome(host, name, {somebody, another, many, 0}), "sent away");
  many.push_back(ours);
  many.push_back(60'200); // the kernel sorts them
  EXPECT_EQ(outcome(host, name, {somebody, another, many, 0}), "joined");
}

TEST_F(RingGroups, AWorkerDoesNotJoinWhatIsNotTheOwners) {
  host.listen(name, ours);
  EXPECT_EQ(outcome(host, name, {somebody, ours, {}, {}}), "did not trust the owner");
  EXPECT_EQ(outcome(host, name, {somebody, ours, {}, somebody}), "did not trust the owner");
  EXPECT_EQ(outcome(host, name, {0, 0, {}, somebody}), "did not trust the owner");
}

} // namespace

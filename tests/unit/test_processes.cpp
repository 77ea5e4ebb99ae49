// SPDX-License-Identifier: MIT
#include "rdmacommon/processes.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace rdmacommon;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr milliseconds limit(10000);

// What an Error says, or "" if there is none.
template <typename What> std::string error_of(const What &what) {
  try {
    what();
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

TEST(Link, KeepsMessagesApart) {
  const auto [a, b] = make_link();
  EXPECT_FALSE(b.has_spoken());
  a.tell("one");
  a.tell(std::string(Link::longest, 'x'));
  EXPECT_TRUE(b.has_spoken());
  EXPECT_EQ(b.hear(limit), "one");
  EXPECT_EQ(b.hear(limit).size(), Link::longest);
}

TEST(Link, RefusesWhatItCannotSay) {
  const auto [a, b] = make_link();
  EXPECT_NE(error_of([&a = a] { a.tell(""); }), "");
  EXPECT_NE(error_of([&a = a] { a.tell(std::string(Link::longest + 1, 'x')); }), "");
  EXPECT_FALSE(b.has_spoken());
}

TEST(Link, WaitsNoLongerThanTheLimit) {
  const auto [a, b] = make_link();
  EXPECT_TRUE(contains(error_of([&b = b] { b.hear(milliseconds(1)); }), "in time"));
}

TEST(Link, SaysThatTheOtherSideIsGone) {
  auto [a, b] = make_link();
  b.tell("unread");
  a = Link();
  EXPECT_TRUE(b.has_spoken());
  EXPECT_TRUE(contains(error_of([&b = b] { b.hear(limit); }), "gone"));
  EXPECT_NE(error_of([&b = b] { b.tell("hello?"); }), "");
}

TEST(Link, TakesFilesThatAreAgreedOnAndNoOthers) {
  const auto [a, b] = make_link();
  const File memory = make_shared_memory("test", 100);
  const std::array two{memory.get(), memory.get()};
  std::vector<File> files;
  a.tell("two", two);
  EXPECT_EQ(b.hear(limit, files, 2), "two");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_NE(files[0].get(), memory.get());
  EXPECT_EQ(fcntl(files[0].get(), F_GETFD), FD_CLOEXEC);
  a.tell("none");
  EXPECT_NE(error_of([&b = b, &files] { b.hear(limit, files, 1); }), "");
  a.tell("two", two);
  EXPECT_NE(error_of([&b = b, &files] { b.hear(limit, files, 1); }), "");
  EXPECT_TRUE(files.empty());
  a.tell("two", two);
  EXPECT_NE(error_of([&b = b] { b.hear(limit); }), "");
}

TEST(Child, TalksAndEnds) {
  Child child([](const Link &parent) { parent.tell("heard " + parent.hear(limit)); });
  child.link().tell("this");
  EXPECT_EQ(child.link().hear(limit), "heard this");
  EXPECT_EQ(child.wait(limit), 0);
  EXPECT_NE(error_of([&] { child.wait(limit); }), "");
}

TEST(Child, HasAStatusForAnExceptionAndForASignal) {
  EXPECT_EQ(Child([](const Link &) { throw std::runtime_error("on purpose"); }).wait(limit), 1);
  EXPECT_EQ(Child([](const Link &) { throw 7; }).wait(limit), 1);
  EXPECT_EQ(Child([](const Link &) { raise(SIGKILL); }).wait(limit), 128 + SIGKILL);
}

TEST(Child, DoesNotRunTheParentsDestructors) {
  const auto [a, b] = make_link();
  struct Teller {
    const Link &to;
    ~Teller() { to.tell("destroyed by " + std::to_string(getpid())); }
  };
  {
    const Teller teller{a};
    EXPECT_EQ(Child([](const Link &) {}).wait(limit), 0);
    EXPECT_EQ(Child([](const Link &) { throw std::runtime_error("on purpose"); }).wait(limit), 1);
  }
  EXPECT_EQ(b.hear(limit), "destroyed by " + std::to_string(getpid()));
  EXPECT_FALSE(b.has_spoken());
}

TEST(Child, IsNotWaitedForLongerThanTheLimitAndDoesNotOutliveItsObject) {
  auto [a, b] = make_link();
  {
    Child child([&a = a](const Link &parent) {
      a.tell("here");
      parent.hear(seconds(100));
    });
    a = Link();
    EXPECT_EQ(b.hear(limit), "here");
    EXPECT_TRUE(contains(error_of([&] { child.wait(milliseconds(1)); }), "does not end"));
  }
  EXPECT_TRUE(
      contains(error_of([&b = b] { b.hear(limit); }), "gone")); // its end of the link is closed
}

TEST(Child, IsKilledAlsoWhenItIsStopped) {
  auto [a, b] = make_link();
  Child child([&a = a](const Link &) {
    a.tell("here");
    raise(SIGSTOP);
  });
  a = Link();
  EXPECT_EQ(b.hear(limit), "here");
  child.kill();
  EXPECT_TRUE(contains(error_of([&b = b] { b.hear(limit); }), "gone"));
  EXPECT_EQ(child.pid(), -1);
  child.kill(); // it is dead: nothing to do
  EXPECT_NE(error_of([&] { child.wait(limit); }), "");
}

TEST(Child, DoesNotOutliveItsParent) {
  auto [a, b] = make_link();
  Child parent([&a = a](const Link &grandparent) {
    const Child child([&a](const Link &) {
      a.tell("here");
      pause(); // hears nothing and nobody
    });
    a = Link();
    grandparent.hear(limit);
    raise(SIGKILL);
  });
  a = Link();
  EXPECT_EQ(b.hear(limit), "here");
  parent.link().tell("die");
  EXPECT_EQ(parent.wait(limit), 128 + SIGKILL);
  EXPECT_TRUE(contains(error_of([&b = b] { b.hear(limit); }), "gone"));
}

TEST(SharedMemory, IsTheSameInBoth) {
  const File file = make_shared_memory("test", sizeof(int));
  Child child([](const Link &parent) { // older than the mapping
    std::vector<File> files;
    parent.hear(limit, files, 1);
    const SharedMemory memory(files[0].get(), sizeof(int));
    ++*static_cast<int *>(memory.data());
  });
  const SharedMemory memory(file.get(), sizeof(int));
  *static_cast<int *>(memory.data()) = 41;
  child.link().tell("count", std::array{file.get()});
  EXPECT_EQ(child.wait(limit), 0);
  EXPECT_EQ(*static_cast<int *>(memory.data()), 42);
}

TEST(SharedMemory, CannotBeMadeShorterAndMustNotBeAbleTo) {
  const File file = make_shared_memory("test", 100);
  EXPECT_EQ(ftruncate(file.get(), 1), -1);
  EXPECT_NE(error_of([&] { SharedMemory(file.get(), 101); }), "");
  const File open_ended(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(open_ended.get(), 100), 0);
  EXPECT_NE(error_of([&] { SharedMemory(open_ended.get(), 100); }), "");
  EXPECT_NE(error_of([] { SharedMemory(-1, 100); }), "");
}

} // namespace

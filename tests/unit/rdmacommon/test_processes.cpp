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

// Returns the words of an Error, or "" if there is none.
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
  EXPECT_FALSE(b.can_receive());
  a.send("one");
  a.send(std::string(Link::longest, 'x'));
  EXPECT_TRUE(b.can_receive());
  EXPECT_EQ(b.receive(limit), "one");
  EXPECT_EQ(b.receive(limit).size(), Link::longest);
}

TEST(Link, RefusesWhatItCannotSay) {
  const auto [a, b] = make_link();
  EXPECT_NE(error_of([&a = a] { a.send(""); }), "");
  EXPECT_NE(error_of([&a = a] { a.send(std::string(Link::longest + 1, 'x')); }), "");
  EXPECT_FALSE(b.can_receive());
}

TEST(Link, WaitsNoLongerThanTheLimit) {
  const auto [a, b] = make_link();
  EXPECT_TRUE(contains(error_of([&b = b] { b.receive(milliseconds(1)); }), "in time"));
}

TEST(Link, SaysThatTheOtherSideIsGone) {
  auto [a, b] = make_link();
  b.send("unread");
  a = Link();
  EXPECT_TRUE(b.can_receive());
  EXPECT_TRUE(contains(error_of([&b = b] { b.receive(limit); }), "gone"));
  EXPECT_NE(error_of([&b = b] { b.send("hello?"); }), "");
}

TEST(Link, TakesFilesThatAreAgreedOnAndNoOthers) {
  const auto [a, b] = make_link();
  const File memory = make_shared_memory("test", 100);
  const std::array two{memory.get(), memory.get()};
  std::vector<File> files;
  a.send("two", two);
  EXPECT_EQ(b.receive(limit, files, 2), "two");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_NE(files[0].get(), memory.get());
  EXPECT_EQ(fcntl(files[0].get(), F_GETFD), FD_CLOEXEC);
  a.send("none");
  EXPECT_NE(error_of([&b = b, &files] { b.receive(limit, files, 1); }), "");
  a.send("two", two);
  EXPECT_NE(error_of([&b = b, &files] { b.receive(limit, files, 1); }), "");
  EXPECT_TRUE(files.empty());
  a.send("two", two);
  EXPECT_NE(error_of([&b = b] { b.receive(limit); }), "");
}

TEST(Child, TalksAndEnds) {
  Child child([](const Link &parent) { parent.send("heard " + parent.receive(limit)); });
  child.link().send("this");
  EXPECT_EQ(child.link().receive(limit), "heard this");
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
    ~Teller() { to.send("destroyed by " + std::to_string(getpid())); }
  };
  {
    const Teller teller{a};
    EXPECT_EQ(Child([](const Link &) {}).wait(limit), 0);
    EXPECT_EQ(Child([](const Link &) { throw std::runtime_error("on purpose"); }).wait(limit), 1);
  }
  EXPECT_EQ(b.receive(limit), "destroyed by " + std::to_string(getpid()));
  EXPECT_FALSE(b.can_receive());
}

TEST(Child, IsNotWaitedForLongerThanTheLimitAndDoesNotOutliveItsObject) {
  auto [a, b] = make_link();
  {
    Child child([&a = a](const Link &parent) {
      a.send("here");
      parent.receive(seconds(100));
    });
    a = Link();
    EXPECT_EQ(b.receive(limit), "here");
    EXPECT_TRUE(contains(error_of([&] { child.wait(milliseconds(1)); }), "does not end"));
  }
  // Its end of the link is closed.
  EXPECT_TRUE(contains(error_of([&b = b] { b.receive(limit); }), "gone"));
}

TEST(Child, IsKilledAlsoWhenItIsStopped) {
  auto [a, b] = make_link();
  Child child([&a = a](const Link &) {
    a.send("here");
    raise(SIGSTOP);
  });
  a = Link();
  EXPECT_EQ(b.receive(limit), "here");
  child.kill();
  EXPECT_TRUE(contains(error_of([&b = b] { b.receive(limit); }), "gone"));
  EXPECT_EQ(child.pid(), -1);
  child.kill(); // it is dead: nothing to do
  EXPECT_NE(error_of([&] { child.wait(limit); }), "");
}

TEST(Child, DoesNotOutliveItsParent) {
  auto [a, b] = make_link();
  Child parent([&a = a](const Link &grandparent) {
    const Child child([&a](const Link &) {
      a.send("here");
      pause(); // hears nothing and nobody
    });
    a = Link();
    grandparent.receive(limit);
    raise(SIGKILL);
  });
  a = Link();
  EXPECT_EQ(b.receive(limit), "here");
  parent.link().send("die");
  EXPECT_EQ(parent.wait(limit), 128 + SIGKILL);
  EXPECT_TRUE(contains(error_of([&b = b] { b.receive(limit); }), "gone"));
}

TEST(SharedMemory, IsTheSameInBoth) {
  const File file = make_shared_memory("test", sizeof(int));
  Child child([](const Link &parent) { // older than the mapping
    std::vector<File> files;
    parent.receive(limit, files, 1);
    const SharedMemory memory(files[0].get(), sizeof(int));
    ++*static_cast<int *>(memory.data());
  });
  const SharedMemory memory(file.get(), sizeof(int));
  *static_cast<int *>(memory.data()) = 41;
  child.link().send("count", std::array{file.get()});
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

// SPDX-License-Identifier: MIT
// For the tests of Members: a sender's thread that only notes its calls, and children that join
// when they are asked to. Make the children first: Members has a thread.
#pragma once

#include "members.hpp"

#include <rdmacommon/check.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using namespace rdmashared; // for tests alone
using rdmacommon::check_errno, rdmacommon::Child, rdmacommon::Error, rdmacommon::File,
    rdmacommon::Link, rdmacommon::make_link;
using std::chrono::seconds, std::chrono::milliseconds;

inline constexpr AreaShape small{.slots = 8, .slot_size = 64, .long_responses = 0, .largest = 0};
inline constexpr seconds soon{60}; // for what must come

inline std::string a_name() {
  static int count = 0;
  return "test_area_members." + std::to_string(getpid()) + "." + std::to_string(++count);
}

inline bool is_readable(int fd, milliseconds limit = milliseconds(0)) {
  pollfd poller{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&poller, 1, static_cast<int>(limit.count())) > 0;
}

class FakeThread {
public:
  OwnBoard board{1};
  const bool keeps_members; // they have file descriptors

  explicit FakeThread(bool keeps = true) : keeps_members(keeps) {}

  SenderThread callbacks() {
    return {.board = board.fd(),
            .joined =
                [this](Member member) {
                  const std::lock_guard lock(mutex_);
                  joined_.push_back(member.number);
                  if (keeps_members)
                    members_.push_back(std::move(member));
                  changed_.notify_all();
                },
            .left =
                [this](uint32_t number) {
                  const std::lock_guard lock(mutex_);
                  left_.push_back(number);
                  changed_.notify_all();
                }};
  }
  bool wait_for_joined(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, soon, [&] { return joined_.size() >= count; }) &&
           joined_.size() == count;
  }
  bool wait_for_left(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, soon, [&] { return left_.size() >= count; }) &&
           left_.size() == count;
  }
  std::vector<uint32_t> joined() {
    const std::lock_guard lock(mutex_);
    return joined_;
  }
  std::vector<uint32_t> left() {
    const std::lock_guard lock(mutex_);
    return left_;
  }
  Member member(size_t place) {
    const std::lock_guard lock(mutex_);
    return members_.at(place);
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint32_t> joined_, left_;
  std::vector<Member> members_;
};

// Joins from this process.
inline Joined join_here(Members &members) {
  auto [mine, theirs] = make_link();
  members.invite(std::move(mine));
  return join(std::move(theirs), soon);
}

// Its link is closed, which may be a little later than the thread hears of it.
inline bool becomes_alone(const Joined &joined) {
  return is_readable(joined.link.fd(), soon) && joined.sender_has_gone();
}

// Holds all that the process has open, until the test drops its end of the link.
inline void fork_holder(const Link &test) {
  if (fork() == 0) {
    test.can_receive(std::chrono::hours(1));
    _exit(0);
  }
}

// A process that does what it is told.
class Process {
public:
  Process() : child_([](const Link &test) { run(test); }) {}

  std::string ask(const std::string &what, std::vector<int> files = {}) {
    child_.link().send(what, files);
    return child_.link().receive(soon);
  }
  // @return "joined" and its number, or why it has not
  std::string join_by_link(Members &members) {
    auto [mine, theirs] = make_link();
    members.invite(std::move(mine));
    return ask("link", {theirs.fd()});
  }
  std::string join_by_name(const std::string &name) { return ask("name " + name); }
  void kill() { child_.kill(); }

private:
  static void run(const Link &test) {
    std::unique_ptr<Joined> joined;
    for (;;) {
      std::vector<File> files;
      const std::string said = test.receive(std::chrono::hours(1), files);
      std::string answer = "done";
      try {
        if (said == "link" || said.starts_with("name ")) {
          Link link = said == "link" ? Link(std::move(files.at(0)))
                                     : connect_to(said.substr(5), soon, rdmacommon::Where::here());
          joined = std::make_unique<Joined>(join(std::move(link), soon));
          answer = "joined " + std::to_string(joined->number);
        } else if (said == "leave") {
          joined.reset();
        } else if (said == "hold") {
          fork_holder(test);
        } else if (said == "alone?") {
          answer = joined->sender_has_gone() ? "alone" : "not alone";
        } else if (said == "wait until alone") {
          answer = becomes_alone(*joined) ? "alone" : "not alone";
        } else if (said == "submit") {
          joined->area->submitted() = 42;
          const uint64_t one = 1;
          answer =
              write(joined->doorbell.get(), &one, sizeof one) == sizeof one ? "done" : "failed";
        } else if (said == "make the event block") {
          const int event = joined->event.get();
          check_errno(fcntl(event, F_SETFL, fcntl(event, F_GETFL) & ~O_NONBLOCK), "fcntl");
          const uint64_t most = ~uint64_t{0} - 1;
          check_errno(static_cast<int>(write(event, &most, sizeof most)), "write");
        } else if (said == "wait for event" || said == "event?") {
          answer = is_readable(joined->event.get(), said == "event?" ? seconds(0) : soon)
                       ? "rung"
                       : "silent";
        }
      } catch (const Error &error) {
        answer = error.what();
      }
      test.send(answer);
    }
  }

  Child child_;
};

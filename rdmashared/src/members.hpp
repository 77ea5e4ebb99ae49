// SPDX-License-Identifier: MIT
// Layer: ends. The processes that have joined a sender. A thread of its own lets them join, makes
// their areas, and notices when one has gone. So a process that connects and says nothing delays no
// request of the others.
#pragma once

#include "epoll_loop.hpp"
#include "memory.hpp"

#include <rdmacommon/processes.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace rdmashared {

// Rings a worker that has asked for it. It is a pair of sockets, since each end is an open file of
// its own. An eventfd is one for both sides, and a worker could make it block for the sender, too
// (O_NONBLOCK, fcntl(2)).
class WorkerEvent {
public:
  // @param workers_end readable once somebody has rung
  explicit WorkerEvent(rdmacommon::File &workers_end);
  // Any number of times: when the worker reads none, what is there already tells it.
  void ring() const noexcept;

private:
  rdmacommon::File socket_;
};

// A process that has joined: what its sender thread needs.
struct Member {
  uint32_t number; // less than max_workers, and no other member's
  std::shared_ptr<Area> area;
  std::shared_ptr<Event> doorbell; // the worker rings it when the sender sleeps
  std::shared_ptr<WorkerEvent> event;
  pid_t pid; // for a person to read; 0: unknown
};

// One of the sender's threads, to which members are given.
struct SenderThread {
  int board; // a descriptor
  std::function<void(Member)> joined;
  std::function<void(uint32_t number)> left; // calls Members::is_free() once the number is free
};

// The worker processes of a sender, by their numbers.
class Members {
public:
  static constexpr uint32_t max_half_open = 64; // processes that have not said hello yet, at most
  static constexpr std::chrono::seconds hello_limit{5};

  // @param name  of an abstract socket, or empty
  // @param group whose members may join, beside this user's processes
  // @throws Error if the name is in use
  Members(const AreaShape &shape, std::vector<SenderThread> threads, const std::string &name,
          std::optional<gid_t> group);
  ~Members();
  Members(const Members &) = delete;
  Members &operator=(const Members &) = delete;

  // Any thread can call these functions.

  // Lets the process at the other end of the link join.
  void invite(rdmacommon::Link link);
  void is_free(uint32_t thread, uint32_t number);
  // It has damaged its area, or cannot be watched: its link is closed, and SenderThread::left() is
  // called.
  void drop(uint32_t thread, uint32_t number);

private:
  struct Process {
    rdmacommon::Link link;
    rdmacommon::File pidfd; // once it has joined
    uint32_t thread = 0, number = 0;
    Clock::time_point hello_until;
    bool has_joined() const { return pidfd.get() >= 0; }
  };
  using ProcessIterator = std::list<Process>::iterator;

  void run();
  void accept();
  void watch_listener();
  void pause_listener(Clock::time_point until);
  void add_process(rdmacommon::Link link);
  void welcome(ProcessIterator process);
  void forget(ProcessIterator process);
  uint32_t half_open() const;

  const AreaShape shape_;
  const std::vector<SenderThread> threads_;
  const std::optional<gid_t> group_;
  const rdmacommon::File own_pidfd_; // the others get it
  rdmacommon::File listener_;
  Loop loop_;
  std::list<Process> processes_;
  std::vector<std::vector<bool>> is_taken_; // the numbers that are in use, for each thread
  std::vector<uint32_t> joined_;            // the number of members of each thread, now
  std::optional<Clock::time_point> paused_until_;
  bool is_over_ = false;
  std::thread thread_;
};

// A worker's side of a sender that it has joined.
struct Joined {
  rdmacommon::Link link;
  rdmacommon::File sender; // a pidfd
  std::unique_ptr<SharedBoard> board;
  std::unique_ptr<Area> area;
  rdmacommon::File doorbell, event;
  uint32_t number;

  bool sender_has_gone() const; // returns true if the sender has gone; makes a system call
};

// @throws Error if the sender does not answer in time
Joined join(rdmacommon::Link link, std::chrono::milliseconds limit);
// @throws Error if nobody listens, or a user does who is neither this one nor root
rdmacommon::Link connect_to(const std::string &name, std::chrono::milliseconds limit,
                            rdmacommon::Where where);

} // namespace rdmashared

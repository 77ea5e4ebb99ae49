// SPDX-License-Identifier: MIT
// Layer: ends. The worker's end: the requests of a process, in its own area. The threads of the
// process share the area under a lock; no other process has it.
#pragma once

#include "memory.hpp"
#include "epoll_loop.hpp"
#include "members.hpp"

#include "rdmashared/caller.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace rdmashared {

// [caller-area]
class CallerArea {
public:
  static constexpr uint32_t no_room = ~uint32_t{0}; // the request has none for a long response

  CallerArea(rdmacommon::Link link, Waiting waiting);

  std::optional<Pending> try_request(std::span<const std::byte> bytes,
                                     const RequestOptions &options, Want want);
  Pending request(std::span<const std::byte> bytes, const RequestOptions &options, Want want);

  // Of a Pending that has not been collected.
  bool is_ready(const Pending &pending) const {
    return area().answer(pending.slot_).outcome.load(std::memory_order_acquire) != 0;
  }
  bool wait(Pending &pending, std::chrono::milliseconds limit, const InPlace &in_place);
  void drop(const Pending &pending);
  void forget(Pending pending); // of a post

  std::optional<size_t> wait_any(std::span<const Pending> requests, std::chrono::milliseconds limit,
                                 std::optional<Waiting> waiting, rdmacommon::Where where);
  bool wait_connected(std::chrono::milliseconds limit, std::optional<uint32_t> server,
                      rdmacommon::Where where);

  void request_then(std::span<const std::byte> bytes, Then then, const RequestOptions &options);
  int fd();
  size_t run_ready();

  uint32_t largest_response() const { return area().shape().largest; }

private:
  // Of the process's slots. The sender never sees it.
  enum class Use : uint8_t { free, used, unwanted };

  const Area &area() const { return *joined_.area; }
  const Board &board() const { return **joined_.board; }
  bool is_over() const { return board().is_over.load() != 0 || joined_.is_alone(); }

  uint32_t slots_for_request(size_t bytes, const RequestOptions &options) const;
  std::optional<uint32_t> find_slots(uint32_t count);
  bool is_free(uint32_t slot);
  std::optional<uint32_t> find_room();
  void submit(const Submission &what);
  void release(uint32_t slot);
  void free(const Pending &pending);
  template <typename IsDone>
  bool sleep_until(IsDone is_done, std::chrono::milliseconds limit, Waiting how,
                   rdmacommon::Where where);
  void use_answer(const Pending &pending, const InPlace &in_place);
  void set_timer(Clock::time_point when);

  const pid_t process_ = getpid();
  const Waiting waiting_;
  std::array<Patience, 3> patience_{Patience(Waiting::poll), Patience(Waiting::events),
                                    Patience(Waiting::adaptive)}; // by Waiting
  Joined joined_;

  std::mutex mutex_; // of what follows
  struct Taken {     // by the request that begins there
    uint32_t slots = 0, room = no_room;
  };
  std::vector<Use> uses_; // of each slot
  std::vector<Taken> taken_;
  std::vector<bool> is_room_used_;
  uint32_t next_slot_ = 0, submitted_ = 0;

  struct Callback {
    Pending pending;
    Then then;
    Clock::time_point deadline;
  };
  std::mutex callbacks_mutex_;
  std::list<Callback> callbacks_;
  Clock::time_point timer_at_ = Clock::time_point::max();
  rdmacommon::File epoll_, timer_; // made by the first fd()
};
// [caller-area]

} // namespace rdmashared

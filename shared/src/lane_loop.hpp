// SPDX-License-Identifier: MIT
// A thread's loop over lanes: their turns, and their common sleep. A sender has one such thread or
// several, and each lane belongs to one of them.
#pragma once

#include "errands.hpp"
#include "lane.hpp"
#include "orders.hpp"
#include "poller.hpp"
#include "sender_state.hpp"
#include "stats.hpp"

#include "rdmashared/sender.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/ring_host.hpp>

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

namespace rdmashared {

class LaneLoop {
public:
  // @param number which of `options.threads` it is. It has the rings with the host's doorbell of
  //               this number, and number 0 also lets workers join and leave
  // @param options, host, state outlive this object
  LaneLoop(uint32_t number, const SenderOptions &options, const Shape &shape,
           rdmacommon::RingHost &host, SenderState &state);
  LaneLoop(const LaneLoop &) = delete;
  LaneLoop &operator=(const LaneLoop &) = delete;

  // In its thread. Returns after stop(). @throws Error if a ring is damaged
  void run();
  // In its thread, after run(): all callers that wait get an error.
  void end();
  // In its thread. The host has reclaimed what the worker had claimed.
  void worker_left(uint32_t worker);

  // From any thread.
  void stop();
  // The same as worker_left(), in its thread, which also reclaims.
  // @return ready when that is done, or the loop has ended; for wait() alone
  std::future<void> worker_left_there(uint32_t worker);
  Counts counts() const { return stats_.now(); }

private:
  bool arm();
  void take_events(bool may_sleep);
  void look_at(int fd);
  void note_what_is_up();

  const SenderOptions &options_;
  rdmacommon::RingHost &host_;
  SenderState &state_;
  const bool is_first_;
  const int doorbell_, bell_fd_; // the doorbell; what says that it has rung
  Stats stats_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  std::vector<rdmacommon::SlotRing *> rings_;
  std::vector<std::unique_ptr<Lane>> lanes_; // one for each
  std::optional<Errands> errands_;           // the lanes'; goes before them
  Poller poller_;
  Orders orders_;
  uint32_t up_ = 0; // lanes
  bool is_stopped_ = false;
};

} // namespace rdmashared

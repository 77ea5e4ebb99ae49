// SPDX-License-Identifier: MIT
// The one that owns the RDMA resources: threads with the lanes to all servers, the rings in front
// of them, and the door by which workers join. Workers call it through a Caller.
#pragma once

#include "lane_loop.hpp"
#include "sender_state.hpp"
#include "stats.hpp"

#include "rdmashared/sender.hpp"

#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace rdmashared {

class SenderLoop {
public:
  SenderLoop(const SenderOptions &options, std::vector<rdmacommon::Link> links);
  ~SenderLoop();
  SenderLoop(const SenderLoop &) = delete;
  SenderLoop &operator=(const SenderLoop &) = delete;

  uint32_t connections() const { return host_.rings(); }
  void wait_until_up(std::chrono::milliseconds limit);
  bool is_running() const { return state_.is_running(); }
  Caller caller(Waiting waiting);
  Counts counts() const;
  std::string why() const { return state_.why(); }

private:
  void run(LaneLoop &loop);
  void end();
  void worker_left(uint32_t worker);

  const SenderOptions options_;
  rdmacommon::RingHost host_;
  SenderState state_;
  std::vector<std::unique_ptr<LaneLoop>> loops_; // one for each thread
  std::vector<std::thread> threads_;
};

} // namespace rdmashared

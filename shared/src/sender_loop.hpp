// The one that owns the RDMA resources: a thread with the lanes to all servers, the rings in front of them, and the door by which
// workers join. Workers call it through a Caller.
#pragma once

#include "errands.hpp"
#include "lane.hpp"
#include "poller.hpp"
#include "stats.hpp"

#include "rdmashared/sender.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
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
  bool is_running() const { return is_running_.load(std::memory_order_acquire); }
  std::unique_ptr<CallerLanes> caller(Waiting waiting);
  Counts counts() const { return stats_.now(); }
  std::string why() const;

private:
  void run();
  bool arm();
  void look_around(bool may_sleep);
  void look_at(int fd);
  void note_what_is_up();

  const SenderOptions options_;
  Stats stats_;
  rdmacommon::RingHost host_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::optional<Errands> errands_; // the lanes'; goes before them
  Poller poller_;
  Event stop_;
  mutable std::mutex mutex_;        // of up_ and why_
  std::condition_variable changed_; // for wait_until_up()
  uint32_t up_ = 0;                 // lanes
  std::string why_;
  std::atomic<bool> is_running_{true};
  std::thread thread_;
};

} // namespace rdmashared

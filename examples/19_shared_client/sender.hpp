// The one that owns the RDMA resources: a thread with the lanes to all servers, the rings in front of them, and the door by which
// workers join. Workers call it through a Caller.
//
//     SenderOptions options{.servers = {{"10.77.0.1", 18515}}};
//     options.name = "name"; // for processes that are started on their own
//     Sender sender(options, std::move(links)); // links: to children that were forked before
//     sender.wait_until_up(std::chrono::seconds(5));
//     Caller caller = sender.caller(); // for this process's threads
#pragma once

#include "caller.hpp"
#include "errands.hpp"
#include "lane.hpp"
#include "stats.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace shared_client {

struct SenderOptions {
  struct Server {
    std::string host;
    uint16_t port;
  };
  std::vector<Server> servers;
  uint32_t connections = 1; // to each server
  LaneOptions lane;         // but for host and port
  Waiting waiting = Waiting::events;
  std::string name;           // under which processes find it; empty: only children join
  std::optional<gid_t> group; // whose members may join as well
};

class Sender {
public:
  // Starts the thread, which begins to connect. @param links to processes that are to join, one each
  // @throws Error if there is no rdma_cm, or no memory
  Sender(const SenderOptions &options, std::vector<rdmacommon::Link> links = {});
  // Ends the thread; whoever waits for a response in another process gets an error. This process's Callers must have gone.
  ~Sender();
  Sender(const Sender &) = delete;
  Sender &operator=(const Sender &) = delete;

  uint32_t connections() const { return host_.rings(); }
  // Sleeps until all of them are up. @throws Error with the reason if they are not within `limit`
  void wait_until_up(std::chrono::milliseconds limit);
  // Whether the thread goes on. It ends by itself only if a ring is damaged.
  bool is_running() const { return is_running_.load(std::memory_order_acquire); }

  Caller caller(Waiting waiting = Waiting::events);
  const Stats &stats() const { return stats_; }
  std::string why() const; // of the connections that are not up: why one is not

private:
  void run();
  bool arm();
  void look_around(bool may_sleep);
  void look_at(int fd);

  const SenderOptions options_;
  Stats stats_;
  rdmacommon::RingHost host_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::optional<Errands> errands_;          // the lanes'; goes before them
  rdmacommon::File epoll_, changed_, stop_; // changed_: how many lanes are up, for wait_until_up()
  std::atomic<uint32_t> up_{0};
  mutable std::mutex mutex_;
  std::string why_;
  std::atomic<bool> is_running_{true};
  std::thread thread_;
};

} // namespace shared_client

// SPDX-License-Identifier: MIT
/// @file
/// The client side of a host: a thread, or several, that has the connections, and sends the
/// requests of all callers in groups.
///
///     rdmashared::Sender sender({.servers = {{.host = "10.77.0.1"}}, .name = "name"});
///     sender.wait_connected(std::chrono::seconds(5));
///     rdmashared::Caller caller = sender.caller(); // in other processes: Caller::join("name")
///
/// Written out in lesson 23_shared_client.
#pragma once

#include "rdmashared/basics.hpp"
#include "rdmashared/caller.hpp"
#include "rdmashared/metrics.hpp"

#include <rdmacommon/processes.hpp>

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rdmashared {

/// The address on which a server listens.
struct ServerAddress {
  std::string host;      ///< A name or an address, IPv4 or IPv6.
  uint16_t port = 18515; ///< A port of rdma_cm.
};

/// The options of a Sender: its servers, its sizes and its time limits.
struct SenderOptions {
  /// The servers, at least one and at most 256. They share the load, unless RequestOptions::server
  /// names one.
  std::vector<ServerAddress> servers;
  uint32_t connections = 1; ///< Connections to each server, 1 to 255.
  /// Slots of each connection's ring, at least 8 and at most 2^24. A request, and a response, can
  /// take three quarters of them, less 40 bytes.
  uint32_t slots = 4096;
  /// Bytes of a slot: a multiple of 8, at least 32 and at most 1 MiB. All slots of a ring together
  /// have 2 GiB at most. A message with 24 bytes in front of it takes as many slots as it needs.
  uint32_t slot_size = 64;
  /// The maximum number of requests of a connection without an answer. Choose more than twice
  /// `area_slots`: then the slow requests of one process cannot fill the window.
  uint32_t window = 4096;
  /// Slots of each process's own area, at least 1. They hold its requests under way, and the
  /// responses that it has not collected.
  /// - A process uses its own area only.
  /// - A request, and its response in the slots, cannot be longer than the area.
  /// - A request that the process gives up gives back its slots, unless it is for a response of any
  ///   length. So a server that hangs does not use up the area.
  /// - A connection carries at most `area_slots` requests that the process has given up, and that
  ///   the server has not answered.
  uint32_t area_slots = 1024;
  /// Bytes of the largest response to a request with RequestOptions::any_length. Those come by a
  /// second queue pair of the same connection, the data connection: figures and limits count the
  /// two as one. 0: there is none, and no such request.
  uint32_t largest_response = 0;
  /// The maximum number of requests with RequestOptions::any_length under way, of each process and
  /// of each connection.
  uint32_t long_responses = 16;
  /// The maximum number of slots in a group, 1 to 255. 1: each message goes by itself. Larger
  /// groups let both CPUs of a small host idle: all requests travel together.
  uint32_t group = 64;
  /// Threads that own the connections, at least 1. Each makes `connections` to each server, and
  /// has its own share of the processes.
  uint32_t threads = 1;
  Waiting waiting = Waiting::adaptive; ///< The way in which each thread waits.
  /// The name by which other processes of this user join, for Caller::join(). Empty: they cannot.
  std::string name = {};
  /// Members of this group may join as well. By its name they join a sender of root only, since
  /// anybody can take a name; of other users, they need a link.
  std::optional<gid_t> members = {};
  /// A number that ServerOptions::new_client gets as Client::secret, to know its clients by. It
  /// goes over the network unencrypted.
  uint64_t secret = 0;
  /// Limit for an attempt to connect, at least 1 ms and at most a day.
  std::chrono::milliseconds connect_within{5000};
  /// The pause before the second attempt to connect, at most a day. It doubles with each attempt.
  /// Attempts go on without end.
  std::chrono::milliseconds retry_delay{200};
  std::chrono::milliseconds max_retry_delay{3200}; ///< The longest such pause, at most a day.
  /// The time in which a server must answer when the sender asks whether it lives, at least 500 ms.
  /// Then the connection is lost. It must be longer than the longest handler that runs inline.
  std::chrono::milliseconds peer_timeout{5000};
  Log log = {}; ///< Gets lines about connections that come up, are lost, or cannot be made.
  std::array<uint64_t, 4> reserved = {}; ///< Reserved for later versions. Leave it out.
};

/// The sender of a host: its connections to servers, and the threads that own them. Any number of
/// Senders can be in a process. Several threads may use one at a time; only one may destroy it,
/// after all calls have returned.
class Sender {
public:
  /// Starts the threads, which begin to connect.
  /// @param links to processes that may join, one each: the ends of rdmacommon::make_link() whose
  ///              other ends are in these processes. A process that has not made its Caller within
  ///              5 seconds cannot join any more
  /// @throws Error if an option is wrong, there is no rdma_cm, no memory, or the name is in use;
  ///         std::system_error if the host has no more threads
  explicit Sender(const SenderOptions &options, std::vector<rdmacommon::Link> links = {});
  /// Ends the threads. Every caller that waits gets an error. This process's Callers must be gone.
  /// Waits for a lookup of a server's name that is under way, which can take as long as the name
  /// servers' time limits say (resolv.conf(5)).
  ~Sender();
  Sender(const Sender &) = delete;
  Sender &operator=(const Sender &) = delete;

  uint32_t connections() const; ///< Connections to all servers, of all threads.
  /// Sleeps until all connections are up.
  /// @throws Error with the reason if they are not within `limit`; the threads go on trying
  /// @throws rdmacommon::Unsupported if a device has no immediate data; the sender has ended then
  void wait_connected(std::chrono::milliseconds limit);
  /// True while the threads go on. They end by themselves only if the host has no more of what they
  /// need, such as file descriptors; then every request fails.
  bool is_running() const;
  /// The reason why a connection is not up; of several, one of them. Empty if all are up.
  std::string why() const;

  /// Makes a Caller for the threads of this process. The Sender must outlive it.
  Caller caller(Waiting waiting = Waiting::adaptive);
  Counts counts() const; ///< The counts of all connections.
  /// The state of each connection and worker, requests by outcome, and how long they took. Asks
  /// each thread, and waits a second for it at most.
  Metrics metrics() const;

private:
  std::unique_ptr<class SenderThreads> threads_;
};

} // namespace rdmashared

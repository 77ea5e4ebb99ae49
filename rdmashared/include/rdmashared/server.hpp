// SPDX-License-Identifier: MIT
/// @file
/// A server of shared clients: it takes their connections, and gives their requests to a handler,
/// in a pool of threads.
///
///     rdmashared::Server server(
///         {.handler_threads = 2},
///         [](std::span<const std::byte> request, std::span<std::byte> response) {
///           std::ranges::copy(request, response.begin()); // an echo
///           return request.size();
///         });
///     rdmashared::serve_until_signal(server);
///
/// Written out in lesson 24_shared_server.
#pragma once

#include "rdmashared/basics.hpp"
#include "rdmashared/metrics.hpp"

#include <array>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rdmashared {

struct Received; // the implementation of Request
enum class Kind : uint8_t;

/// The connection by which a request has come.
struct Client {
  /// The number of the connection, from 1. No two connections of a Server have the same one.
  uint64_t connection = 0;
  std::string host; ///< The client's IP address.
  /// SenderOptions::secret. It comes over the network unencrypted.
  uint64_t secret = 0;
};

/// A request that has no answer yet. It can be moved to another thread, or into a queue, and be
/// answered at any time, once, also after its connection or its Server has gone: then the answer
/// goes nowhere. A Request that is destroyed without an answer is answered as a failure. Not
/// thread-safe by itself.
class Request {
public:
  /// Takes the request over.
  Request(Request &&other) noexcept : what_(std::exchange(other.what_, nullptr)) {}
  Request &operator=(Request &&other) noexcept; ///< Fails its own request, and takes the other one.
  ~Request() {                                  ///< Fails the request if nobody has answered it.
    if (what_ != nullptr)
      fail("the server's handler has not answered it");
  }

  /// The request. The client cannot change these bytes. Valid until the answer.
  std::span<const std::byte> bytes() const;
  /// The memory in which a response can be made in place: as long as the request's slots, or for
  /// RequestOptions::any_length SenderOptions::largest_response bytes. Valid until the answer.
  /// @throws rdmacommon::Error if the client's memory (ServerOptions::memory) is used up
  std::span<std::byte> response_space() const;

  const Client &client() const; ///< The client that sent it. Valid until the answer.
  /// The number of the client's worker, as the client says. A number can be given again when a
  /// worker has gone.
  uint16_t worker() const;
  uint8_t service() const;     ///< RequestOptions::service.
  bool wants_response() const; ///< False for Caller::post().
  /// The time that is left of RequestOptions::limit, in steps of some milliseconds; 0 if it has
  /// passed.
  std::chrono::milliseconds left() const;
  /// Returns true if somebody still waits for the answer: the limit has not passed, and nobody has
  /// cancelled it. A handler that takes long can ask, and fail() early.
  bool is_wanted() const;
  /// The state that ServerOptions::new_client has returned for this client; null if there is no
  /// such function. Valid until the answer.
  void *state() const;

  /// Returns true if it has been answered, or moved away. Then only an assignment and the
  /// destructor may be called.
  bool is_answered() const { return what_ == nullptr; }

  /// Answers with the first `length` bytes of response_space(). If that is more than it has, the
  /// caller gets Outcome::answer_too_long; without memory for response_space(), Outcome::refused.
  /// 0 bytes are a response, too.
  void reply(size_t length);
  /// Answers with a copy of `response`, with the same limit.
  void reply(std::span<const std::byte> response);
  /// Answers with a failure: the caller gets RequestFailed, and server_said() is `why`, as far as
  /// it fits.
  void fail(std::string_view why);

private:
  friend class Job;
  explicit Request(Received &what) : what_(&what) {}
  void end_in_words(Kind kind, std::string_view why);

  Received *what_; // lives until the answer; null after it
};

/// A function of the program that makes a response from a request. Called by several threads at
/// once, unless ServerOptions::handler_threads is 0 and ServerOptions::threads is 1. An exception
/// that it throws becomes a failure, and the caller gets the words of std::exception::what().
/// @param response where the response goes: Request::response_space()
/// @return its length in bytes; if that is more than `response` has, the caller gets
///         Outcome::answer_too_long
using Handler =
    std::function<size_t(std::span<const std::byte> request, std::span<std::byte> response)>;

/// A handler that needs to know its client, or answers later. A request that it has not moved away,
/// and not answered, is a failure when it returns or throws.
///
///     const auto handler = [&](rdmashared::Request &&request) {
///       queue.push(std::move(request)); // another thread answers it, by Request::reply()
///     };
///     rdmashared::Server server({}, handler);
using RequestHandler = std::function<void(Request &&request)>;

/// The options of a Server: its address, its threads, and the limits of its clients.
struct ServerOptions {
  std::string host = {}; ///< The address to listen on. Empty: all of this host's.
  uint16_t port = 18515; ///< A port of rdma_cm; 0: one that is free.
  /// The maximum number of clients at a time. A client is a connection: a Sender has `threads`
  /// times `connections` to each server.
  uint32_t max_clients = 64;
  /// Number of clients after which run() ends; 0: never. One that does not finish connecting does
  /// not count.
  uint32_t exit_after = 0;
  uint32_t slots = 1 << 16; ///< The maximum number of slots of one connection.
  uint32_t window = 4096;   ///< The maximum number of requests of a connection without an answer.
  /// The maximum number of bytes for one connection, less than 2^63: its slots, requests without an
  /// answer, and responses. The device's queues are not counted. On SoftRoCE they take 0.7 MiB, and
  /// 0.5 MiB more if there are responses of any length.
  uint64_t memory = uint64_t{1} << 28;
  /// The maximum number of bytes for all connections, less than 2^63.
  uint64_t total_memory = uint64_t{1} << 30;
  /// The maximum number of slots in a group of answers, 1 to 255. 1: each answer goes by itself.
  uint32_t group = 64;
  /// Threads that own the connections, at least 1. A new client goes to the one that has the
  /// fewest. Several help if one is always busy, and there are CPUs for them.
  uint32_t threads = 1;
  /// Threads of the pool that runs handlers. 0: all handlers run in the threads that own the
  /// connections: one that takes long holds up that thread's clients.
  uint32_t handler_threads = 1;
  /// Services whose handlers run in the threads that own the connections, although there is a
  /// pool: for handlers that are shorter than a wake of another thread.
  std::bitset<256> inline_services = {};
  /// Services that the pool takes first. One of their requests waits at most for the handlers that
  /// are running.
  std::bitset<256> urgent_services = {};
  /// A service that the library answers itself, at once: "serving", or "closing" after stop().
  std::optional<uint8_t> health_service = {};
  Waiting waiting = Waiting::adaptive; ///< The way in which each of `threads` waits.
  /// Limit for a client to connect, at least 1 ms and at most a day.
  std::chrono::milliseconds connect_within{5000};
  /// Connections of one host that may be on the way at a time, at least 1. More are rejected.
  uint32_t half_open = 64;
  std::chrono::milliseconds grace{5000}; ///< Limit for clients to finish after stop().
  /// A function that decides whether a client may come, and makes a state of yours for it. One
  /// thread calls it for each new client, before the client gets memory. An exception rejects the
  /// client. The state is destroyed when the client has gone and its last request is answered, by
  /// any thread. So a state that holds Requests of its own client keeps itself alive until they are
  /// answered.
  std::function<std::shared_ptr<void>(const Client &client)> new_client = {};
  Log log = {};                          ///< Gets lines about clients that are rejected or dropped.
  std::array<uint64_t, 4> reserved = {}; ///< Reserved for later versions. Leave it out.
};

/// A server of shared clients: its listener, its connections and its threads. Any number of Servers
/// can be in a process. One thread calls run(). Several threads may use everything else at a time;
/// only one may destroy it, after all calls have returned.
class Server {
public:
  /// Listens, and serves from run() on.
  /// @throws Error if it cannot listen
  Server(const ServerOptions &options, Handler handler);
  /// Does the same for a handler of Requests.
  Server(const ServerOptions &options, RequestHandler handler);
  ~Server(); ///< Waits for the handlers that run. run() must have returned.
  Server(const Server &) = delete;
  Server &operator=(const Server &) = delete;

  uint16_t port() const; ///< The port on which it listens.

  /// Serves until stop(), or until ServerOptions::exit_after clients have come and gone. Handlers
  /// may still run then: the destructor waits for them. This thread and ServerOptions::threads - 1
  /// others own the connections. Call it once.
  /// @throws Error if the host has no more of what a server needs, such as file descriptors
  void run();

  /// Asks the clients to send no more, and run() returns when all are gone or ServerOptions::grace
  /// has passed. A second call ends the grace. From any thread, also before run(), and from a
  /// signal handler.
  void stop() noexcept;

  Counts counts() const; ///< The counts of all connections.
  /// The state of each client, requests by outcome, and how long they took. Asks each thread, and
  /// waits a second for it at most.
  Metrics metrics() const;
  uint32_t served() const;   ///< Connections that have ended in order.
  uint32_t dropped() const;  ///< Connections that the server has closed, since something was wrong.
  uint32_t rejected() const; ///< Connection requests that the server has rejected.

private:
  friend void serve_until_signal(Server &server);
  std::unique_ptr<class ServerThreads> threads_;
};

/// Calls run(), with SIGINT and SIGTERM as stop(). Blocks the two signals in this thread meanwhile.
/// Other threads of the program must block them too, as the library's own do. For one Server at a
/// time: a signal stops one of them only.
void serve_until_signal(Server &server);

} // namespace rdmashared

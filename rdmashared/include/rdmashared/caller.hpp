// SPDX-License-Identifier: MIT
/// @file
/// The calls of a worker: requests, and what becomes of them. A worker is a process that has joined
/// a Sender. The sender's own process can be one. The calls are the same.
///
///     // In the sender's own process: sender.caller()
///     rdmashared::Caller caller = rdmashared::Caller::join("name");
///     std::vector<std::byte> response = caller.request(bytes);
///     caller.request(bytes, [](std::span<const std::byte> response) {}); // in place, no copy
///     rdmashared::Pending pending = caller.request_async(bytes);
///     pending.wait(std::chrono::seconds(1)); // the response, or nothing yet
///     caller.post(bytes);                    // without a response
///
/// Written out in lesson 23_shared_client.
#pragma once

#include "rdmashared/basics.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rdmashared {

class CallerArea; // the implementation of Caller

// [outcome]
/// The outcome of a request.
///
/// | outcome         | what the server has done       | ask again                              |
/// |-----------------|--------------------------------|----------------------------------------|
/// | response        | answered it                    | -                                      |
/// | refused         | everything, a part, or nothing | as it says                             |
/// | answer_too_long | answered it, in vain           | with more space, if twice does no harm |
/// | lost            | everything, a part, or nothing | if twice does no harm                  |
/// | timed_out       | everything, a part, or nothing | if twice does no harm                  |
/// | not_sent        | nothing                        | after wait_connected()                 |
/// | expired         | nothing                        | with more time                         |
/// | no_room         | nothing                        | later                                  |
/// | too_long        | nothing                        | never                                  |
/// | sender_gone     | nothing                        | after a new join()                     |
///
/// After `lost`, `timed_out` and a cancel, a handler that has begun goes on. The server begins no
/// handler after it has heard that nobody waits, and none whose limit has passed.
enum class Outcome : uint32_t {
  response, ///< There is a response.
  /// The server's handler has failed, or the server has no memory for the response:
  /// RequestFailed::server_said() says why.
  refused,
  lost, ///< The connection broke, or the sender ended, while it was under way.
  /// There is no connection, or the sender could not register the memory for a response of any
  /// length. The request ends at once.
  not_sent,
  /// Its limit passed before the server began, and the server's answer came before the caller gave
  /// up.
  expired,
  answer_too_long, ///< More than RequestOptions::max_response or SenderOptions::largest_response.
  timed_out,       ///< Its limit passed without an answer. The server is told to drop it.
  /// The area of this process is full. A call that does not wait fails at once, and one that waits
  /// when its limit has passed. Or no connection takes the request: on each one, this process has
  /// given up SenderOptions::area_slots requests (`timed_out`, cancel) that the server has not
  /// answered.
  no_room,
  /// It, or the response that it asks for, is longer than the area of this process
  /// (SenderOptions::area_slots), or three quarters of SenderOptions::slots.
  too_long,
  sender_gone, ///< The sender had ended before the request was made.
};
// [outcome]

/// The outcome in words.
/// @return a literal
const char *words_for(Outcome outcome);

/// A request that has no response. what() says why.
///
///     try {
///       caller.request(bytes);
///     } catch (const rdmashared::RequestFailed &failure) {
///       if (failure.outcome() != rdmashared::Outcome::not_sent)
///         throw;
///       caller.wait_connected(std::chrono::seconds(5)); // then ask again
///     }
class RequestFailed : public rdmacommon::Error {
public:
  /// @param detail what the server's handler says, or figures; may be empty
  /// @param where  RequestOptions::where
  explicit RequestFailed(Outcome outcome, const std::string &detail = "",
                         rdmacommon::Where where = rdmacommon::Where::here());
  Outcome outcome() const { return outcome_; } ///< The reason.
  /// The words of the server's handler, and nothing else; empty if the outcome is not `refused`.
  const std::string &server_said() const { return server_said_; }

private:
  Outcome outcome_;
  std::string server_said_;
};

/// The outcome of a request and its response, for programs that do not use exceptions.
///
///     if (const rdmashared::Response response = caller.call(bytes))
///       use(response.bytes);
///     else
///       std::puts(rdmashared::words_for(response.outcome));
struct Response {
  Outcome outcome; ///< Outcome::response, or the reason why there is none.
  /// The response; for Outcome::refused the words of the server's handler; for
  /// Outcome::answer_too_long the two lengths in words; else empty.
  std::vector<std::byte> bytes = {};

  /// True if there is a response.
  explicit operator bool() const { return outcome == Outcome::response; }
};

/// A function of the program that reads a response in the shared memory. The server can write to
/// that memory at any moment: if you do not trust the server, copy first, then check, then use.
using InPlace = std::function<void(std::span<const std::byte> response)>;

/// A request whose response can be collected later, once. Belongs to one thread at a time.
///
/// A Pending that is destroyed, or assigned to, before that is cancelled. All its functions return
/// or throw at the latest when RequestOptions::limit has passed since the request was made.
class Pending {
public:
  /// Takes the request over.
  Pending(Pending &&other) noexcept
      : area_(std::exchange(other.area_, nullptr)), slot_(other.slot_), slots_(other.slots_),
        buffer_(other.buffer_), how_(other.how_), deadline_(other.deadline_), where_(other.where_) {
  }
  Pending &operator=(Pending &&other) noexcept; ///< Cancels its own request, and takes the other.
  ~Pending() { cancel(); }                      ///< Cancels it. The Caller must still exist.

  /// Returns true if wait() and take() would come back at once: the request has been answered, its
  /// limit has passed, or the sender has ended.
  bool is_ready() const;

  /// Waits for the response.
  /// @return a copy of it
  /// @throws RequestFailed if there is no response; Error if it has been collected already
  std::vector<std::byte> wait();
  /// Waits for the response, at most for `limit`. Call it again only if it has returned nothing.
  /// @param limit 0 looks once
  /// @return nothing if `limit` has passed, and the request's own limit has not
  std::optional<std::vector<std::byte>> wait(std::chrono::milliseconds limit);
  /// Waits for the response, and shows it without a copy.
  /// @param in_place called with the response. Its slots are in use until it returns; they are this
  ///                 process's own. An exception that it throws is passed on
  /// @return false if `limit` has passed, and the request's own limit has not
  bool wait(std::chrono::milliseconds limit, const InPlace &in_place);
  /// Waits for the response.
  /// @return it, or why there is none: does not throw RequestFailed
  Response take();

  /// Drops the request. The server is told. If its handler has not begun, it does not begin. Does
  /// nothing for a request that has been collected.
  void cancel() {
    if (area_ != nullptr)
      drop();
  }

private:
  friend class Caller;
  friend class CallerArea;
  Pending(CallerArea &area, uint32_t slot, uint32_t slots, uint32_t buffer, Waiting how,
          std::chrono::steady_clock::time_point deadline, rdmacommon::Where where)
      : area_(&area), slot_(slot), slots_(slots), buffer_(buffer), how_(how), deadline_(deadline),
        where_(where) {}
  bool is_answered() const;
  Outcome answered() const; // only if it is
  void drop();
  std::optional<Outcome> outcome_by(std::chrono::steady_clock::time_point until);
  bool wait_until(std::chrono::steady_clock::time_point until, const InPlace &in_place);
  void collect(Outcome outcome, const InPlace &use);
  [[noreturn]] void throw_failed(Outcome outcome);

  CallerArea *area_; // null once the response has been collected
  uint32_t slot_, slots_, buffer_;
  Waiting how_;
  std::chrono::steady_clock::time_point deadline_;
  rdmacommon::Where where_; // the line that errors name
};

/// A function of the program that takes a request that is ready: Pending::wait() and take() do not
/// wait here. An exception that it throws comes out of Caller::run_ready(). The next run_ready()
/// calls the others that are ready.
using Then = std::function<void(Pending &response)>;

/// The options of a request, which all have defaults.
struct RequestOptions {
  /// A value of `max_response` for a response of any length up to SenderOptions::largest_response.
  /// It takes none of the area's slots, and comes by a second queue pair.
  static constexpr size_t any_length = ~size_t{0};

  /// The maximum number of bytes of the response. It may always have as many as the request's
  /// slots: 64 for a request of up to 64 bytes. More bytes take more slots of the area while the
  /// request lasts, however short the response is: 16 KiB are 256 of SenderOptions::area_slots.
  size_t max_response = 0;
  /// An index into SenderOptions::servers; by default one after the other.
  std::optional<uint32_t> server = {};
  /// The time limit of the request, 1 ms at least. It travels with the request: the server does not
  /// begin a request whose limit has passed.
  std::chrono::milliseconds limit{5000};
  /// The way to wait for the response; by default that of the Caller.
  std::optional<Waiting> waiting = {};
  /// A number of yours. ServerOptions says for each service where its handlers run, and which go
  /// first; a handler can tell requests apart by it (Request::service()).
  uint8_t service = 0;
  std::array<uint64_t, 2> reserved = {}; ///< Reserved for later versions. Leave it out.
  /// The line that errors name: by default that of the braces, or of the call if it has no options.
  rdmacommon::Where where = rdmacommon::Where::here();
};

/// A worker's connection to its sender: it sends the requests of all threads of a process.
/// Thread-safe; must not be used in a child that was forked after it was made.
///
/// Requests of one thread for one server come there in order if SenderOptions::connections is 1.
/// Handlers that run inline, or in a pool of one thread, are called in this order. In a larger pool
/// they run at the same time.
class Caller {
public:
  /// Joins the sender with this name, of the same user or of root. Root's sender says by
  /// SenderOptions::members which other users may join.
  /// @param name  SenderOptions::name
  /// @param limit how long the sender may take to answer
  /// @throws Error if there is none, or it does not answer in time
  static Caller join(const std::string &name, Waiting waiting = Waiting::adaptive,
                     std::chrono::milliseconds limit = std::chrono::seconds(5),
                     rdmacommon::Where where = rdmacommon::Where::here());

  /// Joins a sender, which need not be connected yet: see wait_connected().
  /// @param link whose other end the sender's process gave to its Sender, no more than 5 seconds
  ///             ago, or gives to it within the next 5 seconds
  /// @throws Error if the sender does not answer within 5 seconds, or did not wait longer
  explicit Caller(rdmacommon::Link link, Waiting waiting = Waiting::adaptive);
  Caller(Caller &&) noexcept;            ///< Takes the Pendings of the other one.
  Caller &operator=(Caller &&) noexcept; ///< Takes the other's Pendings; its own must be gone.
  ~Caller();                             ///< Leaves. All its Pendings must be gone.

  /// Sends a request and waits for the response, and for room in the area if it is full.
  /// @return a copy of the response
  /// @throws RequestFailed if there is none; Error if the options name a server that there is not,
  ///         or want a response of any length from a sender without SenderOptions::largest_response
  std::vector<std::byte> request(std::span<const std::byte> bytes,
                                 const RequestOptions &options = {});
  /// Sends a request and waits, and shows the response without a copy.
  void request(std::span<const std::byte> bytes, const InPlace &in_place,
               const RequestOptions &options = {});
  /// Sends a request and waits, for programs that do not use exceptions: does not throw
  /// RequestFailed.
  Response call(std::span<const std::byte> bytes, const RequestOptions &options = {});

  /// Sends a request. Does not wait, neither for room nor for the response.
  /// @throws RequestFailed with Outcome::no_room, too_long or sender_gone; Error as request()
  Pending request_async(std::span<const std::byte> bytes, const RequestOptions &options = {});
  /// Sends a request, for a program that fills its area, and collects responses when it is full.
  /// Does not wait.
  /// @return nothing if the area has no room for the request now
  /// @throws as request_async(), apart from Outcome::no_room
  std::optional<Pending> try_request_async(std::span<const std::byte> bytes,
                                           const RequestOptions &options = {});
  /// Sends several requests, which cost one lock and at most one wake of the sender together.
  /// Does not wait.
  /// @return those that there was room for, from the first on
  /// @throws as request_async(), apart from Outcome::no_room; then none has been sent
  std::vector<Pending> request_batch(std::span<const std::span<const std::byte>> requests,
                                     const RequestOptions &options = {});

  /// Sends a request that wants no response. It returns when the request is in this process's area:
  /// waits for room until RequestOptions::limit has passed. Nobody reports what became of it.
  /// @throws as request_async()
  void post(std::span<const std::byte> bytes, const RequestOptions &options = {});

  /// Waits until one of several requests of this Caller is ready, as is_ready() says.
  /// @param limit   how long; 0 looks once
  /// @param waiting how; by default as the Caller does, whatever the requests'
  ///                RequestOptions::waiting
  /// @return its index, or nothing if `limit` has passed
  /// @throws Error if all of them have been collected
  std::optional<size_t> wait_any(std::span<const Pending> requests, std::chrono::milliseconds limit,
                                 std::optional<Waiting> waiting = {},
                                 rdmacommon::Where where = rdmacommon::Where::here());

  /// Waits until there is a connection, for requests of all kinds: to use before the first request,
  /// and after Outcome::not_sent and Outcome::lost. It can break again before the next request. The
  /// sender tries without end, with pauses of up to SenderOptions::max_retry_delay, which this call
  /// does not shorten. After a request that failed for another reason it returns at once: pause
  /// before you ask again.
  /// @param limit  how long; 0 looks once
  /// @param server an index into SenderOptions::servers; by default any of them
  /// @return false if `limit` has passed
  /// @throws RequestFailed with Outcome::sender_gone; Error if there is no such server
  bool wait_connected(std::chrono::milliseconds limit, std::optional<uint32_t> server = {},
                      rdmacommon::Where where = rdmacommon::Where::here());

  // [then]
  /// Sends a request, for an event loop. run_ready() calls `then` when the request is ready, as
  /// Pending::is_ready() says. Does not wait.
  /// @throws as request_async()
  void request_then(std::span<const std::byte> bytes, Then then,
                    const RequestOptions &options = {});
  /// A descriptor that is readable when run_ready() has something to do: for poll(2), epoll(7) or
  /// an event loop that is built on them. Belongs to this object.
  int fd();
  /// Calls what was given to request_then(), for each request that is ready. From one thread at a
  /// time.
  /// @param limit how long to wait for the first one, if none is ready; 0 does not wait
  /// @return how many
  size_t run_ready(std::chrono::milliseconds limit = std::chrono::milliseconds(0));
  // [then]

  /// SenderOptions::largest_response of the sender that this Caller has joined.
  uint32_t largest_response() const;

private:
  explicit Caller(std::unique_ptr<CallerArea> area);

  std::unique_ptr<CallerArea> area_;
};

} // namespace rdmashared

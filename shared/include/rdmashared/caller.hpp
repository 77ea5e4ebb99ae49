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

class CallerArea; // what is behind a Caller

// [outcome]
/// What became of a request.
enum class Outcome : uint32_t {
  response, ///< There is a response.
  refused,  ///< The server's handler has failed; RequestFailed::server_said() says why.
  lost,     ///< The connection broke after sending. The server may have carried the request out.
  not_sent, ///< There is no connection. The server has not seen the request.
  expired,  ///< Its time limit passed before the server began. The server has not carried it out.
};
// [outcome]

/// The outcome in words.
/// @return a literal
const char *words_for(Outcome outcome);

/// A request that has no response. what() says why.
class RequestFailed : public rdmacommon::Error {
public:
  /// @param server_said what the server's handler says, if it says anything
  /// @param where       RequestOptions::where
  explicit RequestFailed(Outcome outcome, const std::string &server_said = "",
                         rdmacommon::Where where = rdmacommon::Where::here());
  Outcome outcome() const { return outcome_; } ///< Which of the reasons it was.
  /// The words of the server's handler, and nothing else; empty if the handler has not failed.
  const std::string &server_said() const { return server_said_; }

private:
  Outcome outcome_;
  std::string server_said_;
};

/// Takes a response where it lies. The server can write to that memory at any moment: if you do not
/// trust the server, copy first, then check, then use.
using InPlace = std::function<void(std::span<const std::byte> response)>;

/// A request whose response can be collected later. Belongs to one thread. A Pending that is
/// destroyed without a successful wait() drops its response; the server still carries the request
/// out.
class Pending {
public:
  /// The request is this one's then.
  Pending(Pending &&other) noexcept
      : area_(std::exchange(other.area_, nullptr)), slot_(other.slot_), slots_(other.slots_),
        room_(other.room_), how_(other.how_), where_(other.where_) {}
  Pending &operator=(Pending &&) = delete;
  ~Pending() { ///< Before its Caller is destroyed.
    if (area_ != nullptr)
      drop();
  }

  /// Whether wait() would return at once.
  bool is_ready() const;

  /// Waits for the response. Call it again only if it has returned nothing.
  /// @param limit how long; 0 looks once
  /// @return a copy of the response, or nothing if `limit` has passed
  /// @throws RequestFailed if there is no response, Error if the sender has died
  std::optional<std::vector<std::byte>> wait(std::chrono::milliseconds limit);

  /// The same without a copy.
  /// @param in_place called with the response. Its slots are in use until it returns; they are this
  ///                 process's own. An exception that it throws is passed on
  /// @return false if `limit` has passed
  bool wait(std::chrono::milliseconds limit, const InPlace &in_place);

private:
  friend class Caller;
  friend class CallerArea;
  Pending(CallerArea &area, uint32_t slot, uint32_t slots, uint32_t room, Waiting how,
          rdmacommon::Where where)
      : area_(&area), slot_(slot), slots_(slots), room_(room), how_(how), where_(where) {}
  void drop();

  CallerArea *area_; // null once the response has been collected
  uint32_t slot_, slots_, room_;
  Waiting how_;
  rdmacommon::Where where_; // of the request
};

/// Takes a response, or its failure: Pending::wait() does not wait here. An exception that it
/// throws comes out of Caller::run_ready().
using Then = std::function<void(Pending &response)>;

// [request-options]
/// What a request may want beyond the default.
struct RequestOptions {
  /// As room: the response can have any length up to SenderOptions::largest_response. It comes by a
  /// connection of its own.
  static constexpr size_t any_length = ~size_t{0};

  /// Bytes for the response in the request's slots, if it is longer than the request.
  size_t room = 0;
  /// An index into SenderOptions::servers; by default one after the other.
  std::optional<uint32_t> server = {};
  /// How long to wait for a slot, and then for the response.
  std::chrono::milliseconds limit{5000};
  /// How to wait for the response; by default as the Caller does.
  std::optional<Waiting> waiting = {};
  uint8_t service = 0; ///< Which of the server's services: Request::service().
  /// The line that errors name: by default that of the braces, or of the call if it has no options.
  rdmacommon::Where where = rdmacommon::Where::here();
};
// [request-options]

/// Requests from all threads of a process. Thread-safe; must not be used in a child that was forked
/// after it was made.
class Caller {
public:
  /// Joins the sender with this name, of the same user or of root. Root's sender says by
  /// SenderOptions::members which other users may join.
  /// @param name SenderOptions::name
  /// @throws Error if there is none, or it does not answer within 5 seconds
  static Caller join(const std::string &name, Waiting waiting = Waiting::adaptive,
                     rdmacommon::Where where = rdmacommon::Where::here());

  /// Joins a sender.
  /// @param link whose other end the sender's process gave to its Sender
  /// @throws Error if the sender does not answer within 5 seconds
  explicit Caller(rdmacommon::Link link, Waiting waiting = Waiting::adaptive);
  Caller(Caller &&) noexcept; ///< The Pendings of the other one are this one's.
  ~Caller();                  ///< All its Pendings must be gone.

  // [ways]
  /// Sends a request and waits for the response.
  /// @return a copy of the response
  /// @throws RequestFailed if it has failed; Error if it is too long, time is up, the area stays
  ///         full, or the sender is gone
  std::vector<std::byte> request(std::span<const std::byte> bytes,
                                 const RequestOptions &options = {});
  /// The same without a copy of the response.
  void request(std::span<const std::byte> bytes, const InPlace &in_place,
               const RequestOptions &options = {});
  /// Sends a request and does not wait for the response.
  /// @throws as request()
  Pending request_async(std::span<const std::byte> bytes, const RequestOptions &options = {});
  /// The same if there is room for the request now. A response keeps its slots until it is
  /// collected, so a thread that waits for room while it has responses to collect may wait for
  /// itself: use this function there.
  /// @return nothing if this process's area (SenderOptions::area_slots) has no room for it:
  ///         collect responses, and try again
  /// @throws as request()
  std::optional<Pending> try_request_async(std::span<const std::byte> bytes,
                                           const RequestOptions &options = {});
  /// Sends a request that wants no response. It returns when the request is in this process's area.
  /// Nobody reports what became of it.
  /// @throws as request()
  void post(std::span<const std::byte> bytes, const RequestOptions &options = {});
  // [ways]

  /// Waits until one of several requests of this Caller is ready, as is_ready() says.
  /// @param limit   how long; 0 looks once
  /// @param waiting how; by default as the Caller does, whatever the requests'
  ///                RequestOptions::waiting
  /// @return its index, or nothing if `limit` has passed
  /// @throws Error if all of them have been collected, or the sender of one has died
  std::optional<size_t> wait_any(std::span<const Pending> requests, std::chrono::milliseconds limit,
                                 std::optional<Waiting> waiting = {},
                                 rdmacommon::Where where = rdmacommon::Where::here());

  /// Waits until there is a connection: to use after Outcome::not_sent. It can break again before
  /// the next request.
  /// @param limit  how long; 0 looks once
  /// @param server an index into SenderOptions::servers; by default any of them
  /// @return false if `limit` has passed
  /// @throws Error if there is no such server, or its senders have died
  bool wait_connected(std::chrono::milliseconds limit, std::optional<uint32_t> server = {},
                      rdmacommon::Where where = rdmacommon::Where::here());

  // [then]
  /// Sends a request, for an event loop. run_ready() calls `then` when the response is there, the
  /// request has failed, or RequestOptions::limit has passed. Does not wait.
  /// @throws as request(); Error also if there is no room for the request now
  void request_then(std::span<const std::byte> bytes, Then then,
                    const RequestOptions &options = {});
  /// A descriptor that is readable when run_ready() has something to do: for poll(2), epoll(7) or
  /// an event loop that is built on them. Belongs to this object.
  int fd();
  /// Calls what was given to request_then(), for each response that is there. Does not wait. From
  /// one thread at a time.
  /// @return how many
  size_t run_ready();
  // [then]

  /// SenderOptions::largest_response of the sender that this Caller has joined.
  uint32_t largest_response() const;

private:
  std::unique_ptr<CallerArea> area_;
};

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Layer: ends. A session is a client's connection, on the server's side: it takes the requests that
// come in runs, and sends the answers back.
//
// The client can write to the ring of requests at any moment. Each run is copied, then checked, and
// from then on only the copy is used.
#pragma once

#include "batch.hpp"
#include "ring_connection.hpp"
#include "session_state.hpp"
#include "wire.hpp"

#include "rdmashared/server.hpp"

#include <rdmacommon/cm.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace rdmashared {

// Bytes that a server needs for a client, beside its requests: two rings, the requests of one run,
// and the long responses.
inline uint64_t memory_for(const Shape &shape) {
  return 3 * uint64_t{shape.slots} * shape.slot_size +
         uint64_t{shape.long_responses} * shape.largest;
}

// A client's connection. Only the thread of its SessionLoop uses it.
class Session {
public:
  // @param id    taken, unless this throws
  // @param group most slots in a group of answers
  // @throws Error if the device has no room for such a client
  Session(rdmacommon::unique_cm_id &id, const Hello &hello, const Shape &shape,
          std::shared_ptr<SessionState> state, uint64_t token, uint32_t group, Stats &stats);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  void accept();
  // @param id taken, unless this throws
  // @throws Error if it has one, or should have none
  void accept_data(rdmacommon::unique_cm_id &id);
  // Returns true if the client must still make its data connection.
  bool lacks_data_connection() const {
    return shape_.long_responses > 0 && !connection_.has_data_connection();
  }
  void established() { --awaited_; }
  // Returns true if the client can be answered. A client sends nothing before all its connections
  // are established, so a message shows it when the packet that tells this host of it is late or
  // lost. rdma_notify() would make rdma_cm report it now, but then rdma_destroy_id() may take a
  // minute (lessons/real_hardware.md).
  bool is_established() const { return awaited_ == 0 || has_sent_; }

  // Requests that have come, by the way in which they are handled.
  struct Batches {
    enum Handling : size_t { at_once, urgent, usual };
    std::array<std::unique_ptr<Batch>, 3> batches; // by Handling; null: none
    bool is_empty() const { return !batches[at_once] && !batches[urgent] && !batches[usual]; }
  };
  // @param handling of each service
  // @return false if there was nothing
  // @throws Error if the client has said what it should not, or the connection is broken
  bool take(Batches &came, const std::array<Batches::Handling, 256> &handling);
  void answered(Received &request) { ready_.push_back(&request); }
  bool send(); // @return false if there was nothing
  // @return false if it was not armed: look again
  bool arm() { return is_closed() || connection_.arm(); }
  void on_completion_event() { connection_.take_event(); }
  int fd() const { return connection_.fd(); }

  // Asks the host of a client of which nothing has been taken for a while.
  // @return false if it need not
  bool probe_peer();
  void say_closing() { wants_to_say_closing_ = true; } // no more requests, please
  void close() noexcept;
  bool was_dropped = false; // the server's mark
  bool gave_up = false;     // likewise: the client has not finished connecting
  bool is_settled = false;  // likewise: it does not count as half open any more
  bool is_closed() const { return state_->is_closed; }
  rdma_cm_id *id() const { return id_.get(); }
  const Client &client() const { return state_->client; }
  uint32_t in_work() const { return in_work_; }
  // Prepares a session that another thread will destroy.
  void leave_channel() { rdmashared::leave_channel({id_.get(), data_id_.get()}, &connection_); }

  uint64_t token() const { return token_; }
  Clock::time_point began() const { return began_; }

private:
  void message(const Header &header, std::span<const std::byte> bytes, Batches &came,
               const std::array<Batches::Handling, 256> &handling);
  void take_request(const Header &header, std::span<const std::byte> bytes, Batch &batch);
  void cancel(uint64_t id);
  bool send_one(Received &request);

  const uint64_t token_;
  const uint16_t version_; // the version of the protocol
  const Shape shape_;
  Clock::time_point began_ = Clock::now(); // the time when it began to connect
  const std::shared_ptr<SessionState> state_;
  std::vector<bool> is_buffer_used_;
  std::deque<Received *> ready_;   // requests whose answers must be sent
  std::deque<Received *> writing_; // requests whose long response's WRITE is under way
  uint64_t written_ = 0;           // requests that have left writing_, so far
  uint32_t in_work_ = 0;           // requests without an answer
  size_t expected_ = 1;            // requests of a batch: as many as the last one had
  uint32_t requests_ = 0;          // all requests so far
  uint32_t pings_ = 0;             // pings that have no pong yet
  uint32_t awaited_ = 1;           // connections that rdma_cm has not reported yet
  bool has_sent_ = false;          // true: a message came when the client had all its connections
  bool wants_to_say_closing_ = false, has_heard_ = true;
  Stats &stats_;

  rdmacommon::unique_cm_id id_, data_id_;
  Connection connection_;
  rdmacommon::unique_mr long_responses_mr_; // goes first
};

} // namespace rdmashared

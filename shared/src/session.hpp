// SPDX-License-Identifier: MIT
// A client's connection, as the server has it: takes the requests that come in runs, gives them to
// handlers, and sends the answers back in runs, whatever the runs were in which the requests came.
//
// All its memory is the client's to write to at any moment, or is made from what the client says:
// each run is copied, then checked, and from then on only the copy is used.
#pragma once

#include "job.hpp"
#include "long_messages.hpp"
#include "rdma_connection.hpp"
#include "stats.hpp"
#include "wire.hpp"
#include "session_memory.hpp"

#include "rdmashared/server.hpp"

#include <rdmacommon/cm.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rdmashared {

class Session {
public:
  using Clock = std::chrono::steady_clock;

  // @param id    taken, unless this throws
  // @param group most slots in a group of answers
  // @throws Error if the device has no room for such a client
  Session(rdmacommon::unique_cm_id &id, const Hello &hello, std::shared_ptr<SessionMemory> memory,
          uint64_t token, uint32_t group, TimedHandler &handler, Stats &stats);
  ~Session() { memory_->is_closed = true; }
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  void accept();
  // @param id taken, unless this throws
  // @throws Error if it has one, or should have none
  void accept_data(rdmacommon::unique_cm_id &id);
  void established() { --awaited_; }
  bool is_established() const { return awaited_ == 0; }

  // A turn in two halves. Each returns false if there was nothing to do.
  // @param jobs requests that have come are put behind those that are there
  // @throws Error if the client has said what it should not, or the connection is broken
  bool take(std::vector<Job> &jobs);
  bool send();
  // @return false if there was more than one take() can take, or something waits to be sent
  bool has_nothing_else() const;
  // Call it when a turn had nothing. @return false if there is something now
  bool arm();
  void on_completion_event();
  int fd() const { return connection_.fd(); }

  void look_whether_alive() { connection_.look_whether_alive(); }
  void say_closing() { wants_to_say_closing_ = true; } // no more requests, please
  void close() noexcept;
  bool was_dropped = false; // the server's mark
  bool is_closed() const { return memory_->is_closed; }
  rdma_cm_id *id() const { return id_.get(); }
  // Before another thread destroys it.
  void leave_channel() { rdmashared::leave_channel({id_.get(), data_id_.get()}, &connection_); }

  uint64_t token() const { return token_; }
  Clock::time_point began() const { return began_; }

private:
  void take_run(rdmacommon::Run run, uint32_t length, std::vector<Job> &jobs);
  void accept_request(const Message &message, std::vector<Job> &jobs);
  Request make_request(const Message &message);
  void take_finished();
  bool send_answers();
  bool take_group(size_t &sent);
  bool send_long_responses();
  void release(const Message &answer);

  const uint64_t token_;
  const uint32_t group_;
  TimedHandler &handler_;
  Stats &stats_;
  Clock::time_point began_ = Clock::now(); // to connect
  const std::shared_ptr<SessionMemory> memory_;
  const Shape shape_;
  std::vector<std::byte> requests_; // by slot: where the client writes
  std::vector<uint8_t> is_taken_;   // by slot: the request has come and its answer has not gone
  uint32_t in_work_ = 0;            // runs
  uint64_t data_address_ = 0;
  uint32_t data_rkey_ = 0;
  std::vector<Message> long_; // responses that wait for room in the data connection's queue
  std::vector<Message> just_finished_; // empty between two turns
  std::vector<Message> ready_;         // to be sent, in no order
  Cut cut_;                            // what is being sent
  Joined joined_;                      // what is coming,
  Message coming_{};                   // and its header
  uint32_t awaited_ = 1;               // connections that must still be established
  bool wants_to_say_closing_ = false, has_drained_ = true;

  rdmacommon::unique_cm_id id_, data_id_;
  const ibv_mr *data_mr_ = nullptr;
  uint32_t requests_rkey_ = 0;
  rdmacommon::SlotMirror mirror_{};
  Connection connection_;
};

} // namespace rdmashared

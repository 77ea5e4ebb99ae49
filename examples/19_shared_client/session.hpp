// A client's connection, as the server has it: takes the requests that come in runs, has them worked on, and sends the answers
// back in runs, whatever the runs were in which the requests came.
//
// All its memory is the client's to write to at any moment, or is made from what the client says: each run is copied, then
// checked, and from then on only the copy is used.
#pragma once

#include "rdma_connection.hpp"
#include "worker_pool.hpp"
#include "stats.hpp"
#include "wire.hpp"

#include <rdmacommon/cm.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace shared_client {

// From a request to its response. Called by several threads at once. What it throws is told to the client.
// @param response where the response goes
// @return its length in bytes. One that is more than there is room for becomes a failure
using Handler =
    std::function<size_t(std::span<const std::byte> request, std::span<std::byte> response)>;

struct SessionOptions {
  uint32_t most = 255;    // slots in a group of answers; 1: each by itself
  uint32_t window = 4096; // how many requests may be under way, whatever the client asks for
  std::function<void()> finished; // called by a thread of the pool: there are answers to be sent
};

class Session;

// What the pool does: calls the handler for one request.
struct Job {
  Session *session;
  Message request;
  void operator()() const;
};

class Session {
public:
  using Clock = std::chrono::steady_clock;

  // @throws Error if the device has no room for such a client
  Session(rdmacommon::unique_cm_id id, const Hello &hello, uint64_t token,
          const SessionOptions &options, const Handler &handler, Pool<Job> &pool, Stats &stats);
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  void accept();
  void accept_data(rdmacommon::unique_cm_id id); // @throws Error if it has one, or should have none
  void established() { --awaited_; }
  bool is_established() const { return awaited_ == 0; }

  // Does what there is to do. @return false if there was nothing
  // @throws Error if the client has said what it should not, or the connection is broken
  bool turn();
  // To be called when turn() had nothing. @return false if there is something now
  bool arm();
  void on_completion_event();
  int fd() const { return connection_.fd(); }

  void work_on(const Message &request); // the pool's: calls the handler

  void look_whether_alive() { connection_.look_whether_alive(); }
  void say_closing() { wants_to_say_closing_ = true; } // no more requests, please
  void close() noexcept;
  bool was_dropped = false; // the server's mark
  bool is_closed() const { return is_closed_; }
  void reject(Refusal why) { // in place of accept(); fails if the client has gone
    const WelcomeBytes no = refused(why);
    rdma_reject(id_.get(), &no, sizeof no);
  }
  // Before another thread destroys it.
  void leave_channel() { shared_client::leave_channel({id_.get(), data_id_.get()}, &connection_); }
  bool is_gone() const; // and no thread works for it: it may be destroyed

  uint64_t memory() const { return memory_for(shape_); }
  uint64_t token() const { return token_; }
  Clock::time_point began() const { return began_; }

private:
  void take_run(rdmacommon::Run run);
  Message answer_to(const Message &request);
  void hand_over_jobs();
  void take_finished();
  bool send_answers();
  void send_data();
  std::span<std::byte> slot_of(std::vector<std::byte> &memory, uint32_t slot) const {
    return std::span(memory).subspan(size_t{slot} * shape_.slot_size);
  }

  const uint64_t token_;
  const SessionOptions options_;
  const Handler &handler_;
  Pool<Job> &pool_;
  Stats &stats_;
  Clock::time_point began_ = Clock::now(); // to connect
  Shape shape_;
  // requests_: where the client writes; copies_: of it; answers_, data_: what goes out. All of them by slot.
  std::vector<std::byte> requests_, copies_, answers_, data_;
  std::vector<uint8_t> is_taken_; // by slot: the request has come and its answer has not gone
  uint32_t in_work_ = 0;
  uint64_t data_address_ = 0;
  uint32_t data_rkey_ = 0;
  std::vector<Job> jobs_;
  struct OnItsWay {
    Message answer;
    uint64_t data_request; // of the data connection's queue: when it is done, the answer may follow
  };
  std::vector<Message> unsent_;   // with data that wait for room in the data connection's queue
  std::vector<OnItsWay> on_wire_; // data is being written
  std::vector<Message> just_finished_; // empty between two turns
  std::vector<Message> ready_;         // to be sent, in no order
  uint32_t awaited_ = 1;               // connections that are to be established
  bool wants_to_say_closing_ = false;
  std::atomic<bool> is_closed_ = false; // which the pool's threads ask

  mutable std::mutex mutex_; // for what the pool's threads leave here
  std::vector<Message> finished_;
  uint32_t at_work_ = 0; // jobs that were given to the pool and have not ended

  rdmacommon::unique_cm_id id_, data_id_;
  const ibv_mr *data_mr_ = nullptr;
  uint32_t requests_rkey_ = 0;
  rdmacommon::SlotMirror mirror_{};
  Connection connection_;
};

} // namespace shared_client

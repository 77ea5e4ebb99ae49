// SPDX-License-Identifier: MIT
// Layer: ends. The server's end. A session is a client's connection: it takes the requests that
// come in runs, and sends the answers back. A loop is a thread with sessions: it takes their turns
// and their rdma_cm events, gives their requests to handlers, and sleeps for all of them. A server
// has one such thread or several, and each session belongs to one of them.
//
// The client can write to the ring of requests at any moment. Each run is copied, then checked, and
// from then on only the copy is used.
#pragma once

#include "ring_connection.hpp"
#include "epoll_loop.hpp"
#include "wire.hpp"

#include "rdmashared/caller.hpp"
#include "rdmashared/server.hpp"

#include <rdmacommon/cm.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace rdmashared {

class Session;
struct Batch;
struct Received;

// Answers on their way from handlers, which run in any threads, to the thread with the sessions.
class Answers {
public:
  // Adds an answer, and rings if the thread with the sessions sleeps. Any thread can call it.
  void add(Received &answered);
  // The thread with the sessions calls the functions from here on:
  void set_thread() { thread_ = std::this_thread::get_id(); }
  bool is_this_thread() const {
    return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  void take(std::vector<Received *> &into); // @param into empty
  void close();                             // no thread takes answers any more
  // Calls before and after a sleep. @return false if there is an answer: do not sleep
  bool begin_sleep();
  void end_sleep() { is_asleep_.store(false, std::memory_order_relaxed); }
  const Event &event() const { return event_; }

private:
  std::atomic<std::thread::id> thread_;
  Event event_;
  std::atomic<bool> is_asleep_ = false;
  std::mutex mutex_;
  std::vector<Received *> answered_;
  bool is_closed_ = false;
};

// Memory that is limited: that of all sessions together, and that of one.
class Budget {
public:
  // @param loops of the sessions, which will_wait()
  explicit Budget(uint64_t bytes, std::vector<std::shared_ptr<Answers>> loops = {})
      : left_(static_cast<int64_t>(bytes)), loops_(std::move(loops)) {}
  bool has(uint64_t bytes) const { return left_ >= static_cast<int64_t>(bytes); }
  // @return false if there is not so much left
  bool take(uint64_t bytes) {
    int64_t left = left_.load();
    while (left >= static_cast<int64_t>(bytes))
      if (left_.compare_exchange_weak(left, left - static_cast<int64_t>(bytes)))
        return true;
    return false;
  }
  void give_back(uint64_t bytes) {
    left_ += static_cast<int64_t>(bytes);
    if (is_waited_for_ && is_waited_for_.exchange(false))
      for (const auto &each : loops_)
        each->event().ring();
  }
  // Called by a loop before its last look: the next give_back() wakes the loop.
  void will_wait() { is_waited_for_ = true; }
  int64_t left() const { return left_; }

private:
  std::atomic<int64_t> left_;
  std::atomic<bool> is_waited_for_ = false;
  const std::vector<std::shared_ptr<Answers>> loops_;
};

// The part of a session that its requests share. It lives as long as the last of them, so a handler
// can keep a request for longer than its connection lasts.
struct SessionState {
  Client client;
  std::shared_ptr<void> state; // the program's, for this client
  std::shared_ptr<Answers> answers;
  std::shared_ptr<Budget> total;
  Budget own;                          // beside `fixed`
  uint64_t fixed;                      // bytes of `total` that the session has as long as it lives
  Session *session = nullptr;          // the session, for its own thread; null once it is closed
  std::atomic<bool> is_closed = false; // nobody takes answers any more

  std::vector<std::byte> long_responses; // for responses of any length
  uint32_t largest;

  std::mutex mutex;           // protects `batches`
  std::list<Batch *> batches; // the unfinished batches, the newest first

  SessionState(Client whose, std::shared_ptr<Answers> to, std::shared_ptr<Budget> of_all,
               uint64_t for_all, uint64_t for_requests, uint32_t largest_response);
  ~SessionState() { total->give_back(fixed); }
  bool take(uint64_t bytes); // @return false if the budgets do not have so much
  void give_back(uint64_t bytes);
  // @param run most bytes that its requests take
  // @return false if the next run must wait. Once that may have changed, the loop is rung
  bool may_take(uint64_t run);
};

// A request that has come, and its answer.
struct Received {
  Batch *batch; // its own, which lives as long as it does
  Header header;
  ResponseBuffer peer_buffer; // the client's memory for the response to a Kind::long_request
  uint32_t offset = 0;        // index of its first byte in Batch::bytes
  uint32_t place = 0;         // offset of a small response, or buffer number of a long one
  std::span<std::byte> response = {};        // its memory, once the handler has asked for it
  std::vector<std::byte> reason_or_response; // words of a failure, or a response that is not small
  Kind answer{};                             // the kind of its answer, once there is one
  uint32_t length = 0;                       // bytes of the answer
  mutable bool is_cancelled = false;         // by std::atomic_ref
  bool is_written = false;                   // true once the WRITE of a long response is posted

  std::span<const std::byte> bytes() const;
  // Makes memory for the response ready. @return false if the client's memory is used up
  bool has_memory() { return !response.empty() || take_memory(); }
  bool take_memory();
  std::chrono::milliseconds left() const;
  bool is_wanted() const;
  void finish(Kind with, uint32_t bytes);
  void done(); // its answer has been sent, or goes nowhere; the request may be gone then
};

constexpr uint32_t small_response = 256; // bytes: a response that a batch has memory for

// Requests that have come together. It destroys itself when the last of them is done, and nobody
// handles any.
struct Batch {
  // @param expected requests
  // @param before   requests of the session
  Batch(std::shared_ptr<SessionState> of, size_t expected, uint32_t before);
  ~Batch();

  const std::shared_ptr<SessionState> state;
  std::list<Batch *>::iterator place; // its place in SessionState::batches
  std::vector<std::byte> bytes;       // the requests' bytes, one after the other
  std::vector<Received> requests;
  std::unique_ptr<std::byte[]> small_responses; // each is zeroed when it is asked for
  uint32_t small_responses_length = 0;
  bool is_awaited = false; // it has requests, and not only posts
  const Clock::time_point came;
  const uint32_t before;           // requests of the session before this batch
  std::atomic<uint32_t> next = 0;  // index of the next request to handle
  std::atomic<uint32_t> left = 0;  // requests that are not done, and 1 for the Job
  std::atomic<uint64_t> taken = 0; // bytes taken from the budgets

  // The time since the batch came, or less. Each request asks, so this reads the kernel's coarse
  // clock, which is cheap and late. `came` is exact: late, too, it would end time limits too early.
  std::chrono::nanoseconds age() const;
  void done() {
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete this;
  }
};

inline std::span<const std::byte> Received::bytes() const {
  return {batch->bytes.data() + offset, header.length};
}

inline bool Received::is_wanted() const {
  return !std::atomic_ref(is_cancelled).load(std::memory_order_relaxed) &&
         (header.limit_ms == 0 || batch->age() < std::chrono::milliseconds(header.limit_ms));
}

inline void Received::done() {
  batch->done();
}

// The work with a batch, which one thread or several do.
class Job {
public:
  // Takes a batch to which nothing is added any more.
  explicit Job(std::unique_ptr<Batch> batch);
  ~Job(); // drops the requests that nobody has begun: they get no answer
  Job(const Job &) = delete;
  Job &operator=(const Job &) = delete;

  size_t size() const { return batch_.requests.size(); }
  // Calls the handler for requests of the batch, as long as there are some that nobody handles.
  // @param yields_to a pool with urgent work goes first, between two requests; null: nothing does
  // @return false if it has yielded
  bool handle(const RequestHandler &handler, Stats &stats, const Pool *yields_to = nullptr);

private:
  Batch &batch_;
};

// Bytes that a server needs for a client, beside its requests: two rings, the requests of one run,
// and the long responses.
inline uint64_t memory_for(const Shape &shape) {
  return 3 * uint64_t{shape.slots} * shape.slot_size +
         uint64_t{shape.long_responses} * shape.largest;
}

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
  bool is_established() const { return awaited_ == 0; }

  // Requests that have come, by the way in which they are handled.
  struct Batches {
    enum Way : size_t { at_once, urgent, usual };
    std::array<std::unique_ptr<Batch>, 3> batches; // by Way; null: none
    bool is_empty() const { return !batches[at_once] && !batches[urgent] && !batches[usual]; }
  };
  // @param ways of each service
  // @return false if there was nothing
  // @throws Error if the client has said what it should not, or the connection is broken
  bool take(Batches &came, const std::array<Batches::Way, 256> &ways);
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
  bool is_closed() const { return state_->is_closed; }
  rdma_cm_id *id() const { return id_.get(); }
  const Client &client() const { return state_->client; }
  uint32_t in_work() const { return in_work_; }
  // Prepares a session that another thread will destroy.
  void leave_channel() { rdmashared::leave_channel({id_.get(), data_id_.get()}, &connection_); }

  uint64_t token() const { return token_; }
  Clock::time_point began() const { return began_; }

private:
  void establish();
  void message(const Header &header, std::span<const std::byte> bytes, Batches &came,
               const std::array<Batches::Way, 256> &ways);
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
  uint32_t awaited_ = 1;           // connections that must still be established
  bool wants_to_say_closing_ = false, has_heard_ = true;
  Stats &stats_;

  rdmacommon::unique_cm_id id_, data_id_;
  Connection connection_;
  rdmacommon::unique_mr long_responses_mr_; // goes first
};

class SessionLoop {
public:
  // @param pool       for handlers; without threads they run in this loop
  // @param background for what takes long
  // @param on_settled called in this thread for the host of each session that is established now,
  //                   or has gone before it was
  // @param on_closed  called in this thread for each session that was adopted and is no more
  // All of them outlive this object.
  SessionLoop(const ServerOptions &options, const RequestHandler &handler, Pool &pool,
              Pool &background, std::function<void(const std::string &host)> on_settled,
              std::function<void(const Session &)> on_closed);
  ~SessionLoop();
  SessionLoop(const SessionLoop &) = delete;
  SessionLoop &operator=(const SessionLoop &) = delete;

  // Sets the function that takes a client's request for a connection. Called before run(). Only the
  // first loop gets such requests.
  void on_request(std::function<void(rdma_cm_event &)> f) { on_request_ = std::move(f); }
  Loop &loop() { return loop_; }
  rdma_event_channel *channel() const { return channel_.get(); }
  const std::shared_ptr<Answers> &answers() const { return answers_; }
  Stats &stats() { return stats_; }
  void add_to(Metrics &metrics) const; // in its thread

  // Returns after end(). @throws Error if the host has no more of what a server needs
  void run();

  // Only the loop's thread calls these functions:

  // @param made of one session, which is this loop's then. @throws Error if it cannot be accepted;
  //             it stays there
  void adopt(std::list<Session> &made);
  // @param id is the session's then, if there is one that has this token
  Rejection accept_data(uint64_t token, rdmacommon::unique_cm_id &id);
  // Asks all clients to send no more, and closes those that are there at `when`.
  void finish_by(Clock::time_point when);
  void end() { is_over_ = true; }
  // Closes it. It is not this loop's any more.
  void take_down(std::list<Session> &whose, std::list<Session>::iterator session);

private:
  bool turn();
  bool take(Session &session);
  bool add_to_pool(const std::shared_ptr<Job> &job, bool is_urgent);
  void take_answers();
  void sleep();
  bool arm();
  template <typename Function> bool each_session(Function function);
  void take_cm_events();
  void move_here(rdma_cm_id *id);
  void check_deadlines();
  void drop(Session &session, const char *why, bool gave_up = false);
  void tear_down();

  const ServerOptions &options_;
  const RequestHandler &handler_;
  Pool &pool_, &background_;
  const std::array<Session::Batches::Way, 256> ways_; // the way of each service
  const std::function<void(const std::string &)> on_settled_;
  const std::function<void(const Session &)> on_closed_;
  std::function<void(rdma_cm_event &)> on_request_;
  Stats stats_;
  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
  std::vector<Received *> answered_; // empty between two turns
  Loop loop_;
  rdmacommon::unique_event_channel channel_ = rdmacommon::create_event_channel();
  std::list<Session> sessions_;
  Clock::time_point next_look_ = Clock::now(), end_ = Clock::time_point::max();
  bool is_over_ = false;
};

} // namespace rdmashared

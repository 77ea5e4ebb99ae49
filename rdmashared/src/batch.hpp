// SPDX-License-Identifier: MIT
// Layer: ends. Requests of a client that have come together, and the work of their handlers. A
// request is copied before it is checked, and handlers see only the copy.
#pragma once

#include "epoll_loop.hpp"
#include "ring_connection.hpp"
#include "session_state.hpp"
#include "wire.hpp"

#include "rdmashared/server.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

namespace rdmashared {

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

} // namespace rdmashared

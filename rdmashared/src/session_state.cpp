// SPDX-License-Identifier: MIT
#include "session_state.hpp"

#include "batch.hpp"

#include <utility>

namespace rdmashared {

// [answers-add]
void Answers::add(Received &answered) {
  bool is_dropped = false;
  {
    const std::lock_guard lock(mutex_);
    is_dropped = is_closed_;
    if (!is_dropped)
      answered_.push_back(&answered);
  }
  if (is_dropped) // without the lock: done() may destroy what the mutex belongs to
    return answered.done();
  // The other thread does it the other way round.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (is_asleep_.load(std::memory_order_relaxed) && is_asleep_.exchange(false))
    event_.ring();
}

void Answers::close() {
  std::vector<Received *> dropped;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    dropped.swap(answered_);
  }
  for (Received *request : dropped)
    request->done();
}

void Answers::take(std::vector<Received *> &into) {
  const std::lock_guard lock(mutex_);
  into.swap(answered_);
}

bool Answers::begin_sleep() {
  is_asleep_.store(true);
  const std::lock_guard lock(mutex_);
  if (answered_.empty())
    return true;
  is_asleep_.store(false, std::memory_order_relaxed);
  return false;
}
// [answers-add]

SessionState::SessionState(Client whose, std::shared_ptr<Answers> to,
                           std::shared_ptr<Budget> of_all, uint64_t for_all, uint64_t for_requests,
                           uint32_t largest_response)
    : client(std::move(whose)), answers(std::move(to)), total(std::move(of_all)), own(for_requests),
      fixed(for_all), largest(largest_response) {}

// Memory that goes back to the total wakes the loops that wait, so the total is given back last.
bool SessionState::take(uint64_t bytes) {
  if (!total->take(bytes))
    return false;
  if (own.take(bytes))
    return true;
  total->give_back(bytes);
  return false;
}

void SessionState::give_back(uint64_t bytes) {
  own.give_back(bytes);
  total->give_back(bytes);
}

// [may-take]
// A client whose requests have all the memory that it gets has to wait: its runs stay in the ring,
// and it gets no slots back. There is always memory for one run.
bool SessionState::may_take(uint64_t run) {
  const auto may = [&] {
    if (own.has(run) && total->has(run))
      return true;
    const std::lock_guard lock(mutex);
    return batches.empty();
  };
  if (may())
    return true;
  total->will_wait(); // before the last look
  return may();
}
// [may-take]

} // namespace rdmashared

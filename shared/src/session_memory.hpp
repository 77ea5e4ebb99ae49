// SPDX-License-Identifier: MIT
// The memory that a session shares with the requests that it has given to handlers. It lives as
// long as the last of them, so a handler can keep a request for longer than its connection lasts.
#pragma once

#include "events.hpp"
#include "wire.hpp"

#include "rdmashared/server.hpp"

#include <rdmacommon/check.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace rdmashared {

// The server's memory for all sessions together.
class Budget {
public:
  explicit Budget(uint64_t bytes) : left_(bytes) {}
  // @return false if there is not so much left
  bool take(uint64_t bytes) {
    uint64_t left = left_.load();
    while (left >= bytes)
      if (left_.compare_exchange_weak(left, left - bytes))
        return true;
    return false;
  }
  void give_back(uint64_t bytes) { left_ += bytes; }

private:
  std::atomic<uint64_t> left_;
};

// A part of it, given back when this object goes.
class Share {
public:
  Share(std::shared_ptr<Budget> budget, uint64_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {}
  Share(Share &&other) noexcept = default;
  Share &operator=(Share &&) = delete;
  ~Share() {
    if (budget_)
      budget_->give_back(bytes_);
  }

private:
  std::shared_ptr<Budget> budget_; // null once it is another one's
  uint64_t bytes_;
};

// Wakes the thread that has the loop, unless it is that thread that rings.
struct Wake {
  Event event;
  std::atomic<std::thread::id> thread;

  bool is_this_thread() const {
    return std::this_thread::get_id() == thread.load(std::memory_order_relaxed);
  }
};

// [session-memory]
struct SessionMemory {
  SessionMemory(const Shape &of, Client whose, Share of_memory, std::shared_ptr<const Wake> to_wake)
      : shape(of), client(std::move(whose)), wake(std::move(to_wake)), share(std::move(of_memory)),
        copies(size_t{shape.slots} * shape.slot_size), answers(copies.size()),
        data(size_t{shape.slots} * shape.largest) {}

  std::span<std::byte> slot_of(std::vector<std::byte> &memory, uint32_t slot) const {
    return std::span(memory).subspan(size_t{slot} * shape.slot_size);
  }
  // In the slots of a request, behind the header.
  std::span<std::byte> room_in_slots(uint32_t slot, uint32_t slots) {
    return slot_of(answers, slot)
        .first(size_t{slots} * shape.slot_size)
        .subspan(sizeof(rdmacommon::SlotHeader));
  }
  void finish(const Message &answer) {
    const std::lock_guard lock(mutex);
    finished.push_back(answer);
    if (has_rung || wake->is_this_thread()) // it has not looked yet, or it will
      return;
    has_rung = true;
    wake->event.ring();
  }
  // @param into empty; what has been finished, in exchange for its room
  void take_finished(std::vector<Message> &into) {
    const std::lock_guard lock(mutex);
    into.swap(finished);
    has_rung = false;
  }

  const Shape shape;
  const Client client;
  const std::shared_ptr<const Wake> wake;
  const Share share;
  std::shared_ptr<void> state;                  // the program's, for this client
  std::vector<std::byte> copies, answers, data; // by slot: of requests, and what goes out
  std::atomic<bool> is_closed = false;          // nobody takes answers any more

  std::mutex mutex; // of the two below
  std::vector<Message> finished;
  bool has_rung = false; // for them
};
// [session-memory]

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Layer: memory. What a worker process and its sender share: the area and the board.
//
// The area has slots for the requests of one process and their responses, and a queue of the slots
// that it submits. The sender makes it, and shares it with that process alone. The process can
// write anything to it at any time. So the sender reads each word once, checks it, and keeps its
// own records in private memory. The process keeps its list of used slots in private memory, too.
//
// The board is one page. All workers of a sender read it, and only the sender can write it. It
// holds the bells that wake workers, and says whether the sender sleeps.
#pragma once

#include <rdmacommon/processes.hpp>

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace rdmashared {

// ---- the area of a worker process

// The size of an area. The sender chooses it.
struct AreaShape {
  uint32_t slots;          // 1 to max_slots
  uint32_t slot_size;      // bytes, a multiple of 8
  uint32_t long_responses; // for responses of any length: so many at a time
  uint32_t largest;        // bytes of each of them
  uint32_t longest;        // bytes of a request, and of its response in the slots

  // Most bytes of a request that begins with this slot.
  uint64_t longest_from(uint32_t slot) const {
    return std::min(uint64_t{slots - slot} * slot_size, uint64_t{longest});
  }
  static constexpr uint32_t max_slots = 1 << 24;

  bool operator==(const AreaShape &) const = default;
};

// A worker's wish to the sender.
enum class Want : uint8_t {
  response,      // the sender sends the request in these slots, and its response goes there
  long_response, // its response can have any length, and goes into a response buffer
  nothing,       // the sender sends it, and there is no response
};

constexpr uint32_t any_server = ~uint32_t{0};

// A request, found by its first slot. The worker writes it before it queues the slot. It writes the
// next one there once this one has an answer.
struct Submission {
  uint32_t length;          // bytes of the request
  uint32_t max_response;    // bytes for the response in the slots, from the first one on
  uint32_t server;          // an index, or any_server
  uint32_t limit_ms;        // the request's time limit from now on, in milliseconds; 0: none
  uint32_t response_buffer; // number of the buffer for a Want::long_response
  Want want;
  uint8_t service;
  uint16_t unused;
};
static_assert(sizeof(Submission) == 24);

// A bit of a queue entry, beside a slot: nobody waits any more for the response to its request.
constexpr uint32_t cancels = uint32_t{1} << 31;

// The answer to a request, found by the request's first slot. outcome is 0 until there is one.
struct Answer {
  std::atomic<uint32_t> outcome; // 1 + an Outcome
  uint32_t length;               // bytes of the response; valid once there is an outcome
};

// The memory that one worker process and its sender share, as one of them has it mapped.
class Area {
public:
  static rdmacommon::File make(const AreaShape &shape);
  // Maps what make() has made.
  // @throws Error if it is no area, or one of another version
  explicit Area(int memory);
  ~Area();

  const AreaShape &shape() const { return shape_; }

  // The number of slots queued so far, modulo 2^32. The worker writes it after the entry.
  std::atomic<uint32_t> &submitted() const { return header_->submitted; }
  // The entry with this number: the first slot of a request, which may have `cancels` set.
  std::atomic<uint32_t> &queued(uint32_t number) const {
    return queue_[number & (queue_length_ - 1)];
  }
  // Room for each slot three times. A request can be answered just before its cancel is queued.
  // Then its slot is free at once: behind the cancel comes another request, and its cancel. A power
  // of two, so the queue goes round where the number of entries does.
  uint32_t queue_length() const { return queue_length_; }

  // The worker says that it sleeps on its bell, or for its event. The sender takes that back when
  // it wakes the worker.
  std::atomic<uint32_t> &sleeps() const { return header_->sleeps; }
  std::atomic<uint32_t> &wants_event() const { return header_->wants_event; }
  // The same for threads that wait for free slots, which sleep on a word of the area itself: other
  // threads of the process wake them, too.
  std::atomic<uint32_t> &wants_room() const { return header_->wants_room; }
  std::atomic<uint32_t> &room_bell() const { return header_->room_bell; }

  Submission &submission(uint32_t slot) const { return requests_[slot].submission; }
  Answer &answer(uint32_t slot) const { return requests_[slot].answer; }
  // The memory from this slot to the end of all slots.
  std::span<std::byte> slots(uint32_t first) const {
    const size_t offset = size_t{first} * shape_.slot_size;
    return {data_ + offset, size_t{shape_.slots} * shape_.slot_size - offset};
  }
  std::span<std::byte> response_buffer(uint32_t number) const {
    return {response_buffers_ + size_t{number} * shape_.largest, shape_.largest};
  }
  // Begins on a page of its own. A server may write to it, and to nothing else.
  std::span<std::byte> response_buffers() const {
    return {response_buffers_, size_t{shape_.long_responses} * shape_.largest};
  }

private:
  struct Layout {
    std::array<char, 8> magic;
    uint32_t version, header_size;
    AreaShape shape;
    uint64_t queue, requests, data, response_buffers, length; // bytes from the beginning

    explicit Layout(const AreaShape &shape);
    bool operator==(const Layout &) const = default;
  };
  struct Request {
    Submission submission;
    Answer answer;
  };
  struct Header {
    Layout layout;
    alignas(64) std::atomic<uint32_t> submitted;
    alignas(64) std::atomic<uint32_t> sleeps;
    std::atomic<uint32_t> wants_event, wants_room, room_bell;
  };

  const pid_t process_;
  std::unique_ptr<rdmacommon::SharedMemory> memory_;
  AreaShape shape_{};
  uint32_t queue_length_ = 0;
  Header *header_ = nullptr;
  std::atomic<uint32_t> *queue_ = nullptr;
  Request *requests_ = nullptr;
  std::byte *data_ = nullptr, *response_buffers_ = nullptr;
};

// The slots and response buffers that a process uses in its area. The sender never sees this list.
// One thread at a time takes places and gives them up. Any thread can release one at any time.
class AreaUse {
public:
  static constexpr uint32_t no_buffer = ~uint32_t{0}; // the request has none for a long response

  // The area outlives this object.
  explicit AreaUse(const Area &area)
      : area_(area), uses_(area.shape().slots), given_up_(uses_.size()),
        is_buffer_used_(area.shape().long_responses),
        in_use_(std::min(area.shape().slots, first_in_use)) {}

  const Area &area() const { return area_; }

  struct Allocation {
    uint32_t slot = 0, slots = 0, buffer = no_buffer; // the first slot, and how many
  };
  // Allocates what a request needs: slots that follow each other, and perhaps a response buffer.
  // @return nothing if they are not free
  std::optional<Allocation> take(uint32_t slots, bool needs_buffer);
  void release(const Allocation &place) {
    for (uint32_t slot = place.slot; slot < place.slot + place.slots; ++slot)
      uses_[slot].store(Use::free, std::memory_order_release);
    if (place.buffer != no_buffer)
      is_buffer_used_[place.buffer].store(false, std::memory_order_release);
  }
  // Nobody waits for the response: all that the request has is free once it is answered.
  void give_up(const Allocation &place) {
    given_up_[place.slot] = place;
    for (uint32_t slot = place.slot; slot < place.slot + place.slots; ++slot)
      uses_[slot].store(Use::unwanted, std::memory_order_relaxed);
  }

private:
  static constexpr uint32_t first_in_use = 32; // slots
  enum class Use : uint8_t { free, used, unwanted };

  bool is_free(uint32_t slot) {
    const Use use = uses_[slot].load(std::memory_order_acquire);
    return use == Use::free || (use == Use::unwanted && reclaim(slot));
  }
  bool reclaim(uint32_t slot);
  std::optional<uint32_t> find_slots(uint32_t count);
  std::optional<uint32_t> find_buffer();

  const Area &area_;
  std::vector<std::atomic<Use>> uses_; // the use of each slot
  std::vector<Allocation> given_up_;   // places, by their first slot; no slots: none
  std::vector<std::atomic<bool>> is_buffer_used_;
  uint32_t next_slot_ = 0;
  uint32_t in_use_; // from the first slot on; the others have never been used
};

// ---- the board of a sender

constexpr uint32_t max_workers = 1024; // workers of one board, at most
constexpr uint32_t max_servers = 256;

// The page that all workers of one sender thread can read.
struct Board {
  std::array<char, 8> magic;
  uint32_t version, size;
  uint32_t servers;

  alignas(64) std::atomic<uint32_t> is_asleep; // the sender: a worker has to wake it
  std::atomic<uint32_t> busy;                  // workers with requests under way
  alignas(64) std::atomic<uint32_t> is_over;   // the sender has ended
  std::atomic<uint32_t> changes;               // a bell: rung when connections or is_over change
  std::array<std::atomic<uint8_t>, max_servers> connections; // open connections to each server
  // Workers sleep here, 32 on each. A call of the kernel wakes those whose responses have come.
  alignas(64) std::array<std::atomic<uint32_t>, max_workers / 32> bells;
};
static_assert(sizeof(Board) <= 4096);

// Ends the mapping of a board.
struct Unmap {
  void operator()(const Board *board) const;
};

// The sender's own mapping, which can write.
class OwnBoard {
public:
  explicit OwnBoard(uint32_t servers);

  Board &operator*() const { return *board_; }
  Board *operator->() const { return board_.get(); }
  int fd() const { return file_.get(); } // the memory to share; nobody else can map it writable

private:
  rdmacommon::File file_;
  std::unique_ptr<Board, Unmap> board_;
};

// A worker's mapping.
class SharedBoard {
public:
  explicit SharedBoard(int memory); // @throws Error if it is no board, or one of another version

  const Board &operator*() const { return *board_; }
  const Board *operator->() const { return board_.get(); }

private:
  std::unique_ptr<const Board, Unmap> board_;
};

// Sleeps until the word is not `seen` any more and somebody rings for one of these bits, until that
// time, or returns early for no reason. In this order: read the word, say that you sleep, look for
// what you wait for, sleep. A ring in between ends the sleep at once.
void sleep_on(const std::atomic<uint32_t> &word, uint32_t seen, uint32_t bits,
              std::chrono::steady_clock::time_point until);

// Changes the word, and wakes its sleepers.
// @return how many
uint32_t ring(std::atomic<uint32_t> &word, uint32_t bits);

} // namespace rdmashared

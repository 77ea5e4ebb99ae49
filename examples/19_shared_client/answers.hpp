// The answers to the requests of one ring, in the shared memory behind it (its appendix): what has become of each request,
// where its caller can sleep until that is known, and the bytes of the answer.
//
// A request's slots are its caller's from the claim until the answer has been collected. In between they are the
// sender's, and then the server's. One word says whose: each change is one compare-and-swap, so a caller that gives up and an
// answer that comes, or a caller that dies, cannot both win.
#pragma once

#include "waiting.hpp"
#include "wire.hpp"

#include <rdmacommon/slot_ring.hpp>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace shared_client {

// [outcome]
// What became of a request.
enum class Outcome : uint32_t {
  response, // there are bytes
  refused,  // the server's handler has failed; the bytes say why, in words
  lost,     // the connection broke while it was under way: it may have been carried out, or not
  not_sent, // there is no connection
  late,     // the answer was not collected while others needed its slots
};
// [outcome]
const char *words_for(Outcome outcome);

// What the callers of a ring are told about its connection.
struct LaneStatus {
  std::atomic<uint32_t> is_up;
  uint32_t server;  // which of the sender's servers it leads to
  uint32_t largest; // Shape::largest
};

// [answer-control]
enum class AnswerState : uint32_t {
  none,
  waiting,    // the caller wants it
  unwanted,   // nobody will collect it: whoever brings the answer gives the slots back
  answered,   // it is there
  collecting, // the caller is reading it
};

struct AnswerControl {
  std::atomic<uint32_t> word; // bits 0-2: AnswerState; bit 3: the caller sleeps; 4-31: the lap
  Outcome outcome;            // valid once the word says answered
  uint32_t length;            // bytes of the answer
  uint32_t reserved;
};
// [answer-control]

class Answers {
public:
  // How large an appendix a ring needs.
  static uint64_t bytes_for(const Shape &shape);

  // @param ring    with such an appendix; outlives this object
  // @param largest Shape::largest; the sender's, who has made the ring, says it to the others in LaneStatus
  Answers(rdmacommon::SlotRing &ring, uint32_t largest);
  // In a process that has attached: as the sender has set it up.
  explicit Answers(rdmacommon::SlotRing &ring);

  LaneStatus &status() const { return *status_; }
  std::span<std::byte> slots() const { return slots_; } // what the server writes answers into
  std::span<std::byte> data() const { return data_; }   // what its data connection writes into
  uint32_t largest() const { return largest_; }

  // The caller's.
  // Before its request is published.
  void expect(uint64_t position, AnswerState waiting_or_unwanted);
  // Sleeps or spins until the answer is there. `is_over` is asked now and then: the sender may have died.
  // @return false if `limit` has passed
  bool wait(uint64_t position, std::chrono::milliseconds limit, Waiting how,
            const std::function<bool()> &is_over);
  bool is_waiting(uint64_t position) const; // whether it has not come yet
  // Takes the answer, so that it stays where it is until done_with(). False: it is gone, since nobody collected it.
  bool begin_to_collect(uint64_t position);
  struct Answer {
    Outcome outcome;
    std::span<const std::byte> bytes;
  };
  Answer answer(uint64_t position) const; // between these two
  // @param run the slots of the request, which go back to the ring
  void done_with(const rdmacommon::SlotRun &run);
  // The caller does not want it any more. If the answer is there already, the slots go back now. False: it is gone.
  bool drop(const rdmacommon::SlotRun &run);

  // The sender's.
  // Tells the caller, who may still have to be woken. @return false: nobody wants to know, the slots are the sender's to
  // give back
  bool deliver(uint64_t position, Outcome outcome, uint32_t length);
  // Wakes who sleeps for what has been delivered since the last time. @return how many
  uint32_t wake();
  // Takes back an answer that nobody collects. @return whether the slots are the sender's now
  bool expire(uint64_t position);
  // Of a caller that has died before its answer has come: nobody will collect it.
  void abandon(uint64_t position);

private:
  struct Layout;
  void attach(const Layout &layout);
  AnswerControl &control(uint64_t position) const {
    return controls_[position & (ring_.shape().slots - 1)];
  }
  uint32_t word(uint64_t position, AnswerState state) const {
    const uint64_t lap = position >> std::countr_zero(ring_.shape().slots);
    return static_cast<uint32_t>(lap << 4) | static_cast<uint32_t>(state);
  }
  bool change(uint64_t position, AnswerState from, AnswerState to, bool *was_asleep = nullptr);

  rdmacommon::SlotRing &ring_;
  uint32_t largest_;
  LaneStatus *status_ = nullptr;
  AnswerControl *controls_ = nullptr;
  std::span<std::byte> slots_, data_;
  std::vector<std::atomic<uint32_t> *> sleepers_;
};

} // namespace shared_client

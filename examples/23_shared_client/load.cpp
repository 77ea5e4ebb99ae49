// SPDX-License-Identifier: MIT
#include "load.hpp"

#include "timetable.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace {

using rdmacommon::Error;
using namespace rdmashared;
using Bytes = std::vector<std::byte>;
using Random = std::minstd_rand;

RequestOptions options_of(const Load &load) {
  RequestOptions how{.max_response = load.is_long ? RequestOptions::any_length : load.response_size,
                     .limit = load.limit};
  if (load.server >= 0)
    how.server = static_cast<uint32_t>(load.server);
  return how;
}

// @return how to send it
RequestOptions make_request(Bytes &bytes, const Load &load, Random &random, uint64_t number) {
  uint32_t size = load.size, response = load.response_size;
  RequestOptions how = options_of(load);
  if (load.is_mixed) {
    size = static_cast<uint32_t>(random()) % (load.size + 1);
    response = static_cast<uint32_t>(random()) % (load.response_size + 1);
    if (load.is_long && random() % 2 == 0) {
      response = std::min(response, size);
      how.max_response = 0; // in the request's slots
    }
  }
  bytes.resize(size);
  ::make_request(bytes, response, load.microseconds, number);
  return how;
}

void check(std::span<const std::byte> response, const Bytes &request) {
  if (!is_response(response, request))
    throw Error("a response", "it is not to this request");
}

class LoadThread {
public:
  // @param process, thread which of all processes it is, and which of this one's threads
  LoadThread(Caller &caller, const Load &load, uint32_t process, uint32_t thread)
      : caller_(caller), load_(load), seed_(process * 4096 + thread + 1), random_(seed_),
        number_(uint64_t{seed_} << 32),
        timetable_(load.every_us, uint64_t{process % load.processes} * load.threads + thread,
                   uint64_t{load.processes} * load.threads),
        slots_(load.in_flight) {}

  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  Score run() {
    const auto end = Clock::now() + std::chrono::seconds(load_.seconds);
    const bool is_together = load_.in_flight > 1 && !load_.is_mixed && !timetable_.is_used();
    uint32_t steps = 0;
    for (uint32_t i = 0; load_.seconds > 0 ? is_before(end, i, steps++) : i < load_.requests;)
      guarded([&] {
        if (is_together)
          send_together(i, load_.seconds > 0 ? load_.in_flight : load_.requests - i);
        else
          send(i++);
      });
    for (size_t i = 0; i < slots_.size(); ++i)
      guarded([&] { collect(next_slot()); });
    return score_;
  }

private:
  struct Slot { // holds a request that is under way
    Bytes request;
    std::optional<Pending> pending;
    Time began;
  };

  // 0 where nobody wants to know: the clock can be a system call.
  Time now() const { return load_.is_timed ? Clock::now() : Time{}; }
  void count(Time began) {
    ++score_.right;
    if (load_.is_timed)
      score_.latencies.add(Clock::now() - began);
  }

  // Looks at the clock, which can be a system call, in one of `in_flight` steps.
  bool is_before(Time end, uint32_t i, uint32_t step) const {
    return step % load_.in_flight != 0 || std::max(Clock::now(), timetable_.due(i)) < end;
  }

  template <typename Step> void guarded(Step step) {
    try {
      step();
    } catch (const RequestFailed &failure) {
      if (!load_.is_patient)
        throw;
      switch (failure.outcome()) {
      case Outcome::lost:
        ++score_.lost;
        break;
      case Outcome::not_sent:
        ++score_.not_sent;
        wait_connected();
        break;
      case Outcome::sender_gone: // no later request can do better
        throw;
      default:
        ++score_.other;
      }
    }
  }

  // Keeps `in_flight` requests under way, and sends all that it may together.
  // @param i counts the requests that it sends, also if one of them, or an older one, fails
  void send_together(uint32_t &i, uint32_t most) {
    const auto size = static_cast<uint32_t>(slots_.size());
    const auto slot_after = [&](uint32_t count) -> Slot & { // from the next one on
      return slots_[next_ + count < size ? next_ + count : next_ + count - size];
    };
    const auto oldest = [&]() -> Slot & { return slot_after(size - under_way_); };
    if (under_way_ == size)
      do
        collect(oldest());
      while (under_way_ > 0 && oldest().pending->is_ready());
    const RequestOptions how = options_of(load_);
    requests_.clear();
    for (uint32_t k = 0; k < std::min(most, size - under_way_); ++k) {
      Slot &slot = slot_after(k);
      slot.request.resize(load_.size);
      ::make_request(slot.request, load_.response_size, load_.microseconds, ++number_);
      slot.began = now();
      requests_.emplace_back(slot.request);
    }
    std::vector<Pending> sent = caller_.request_batch(requests_, how);
    for (Pending &each : sent) {
      next_slot().pending.emplace(std::move(each));
      ++under_way_;
    }
    i += static_cast<uint32_t>(sent.size());
    if (sent.size() == requests_.size())
      return;
    if (under_way_ > 0) // the area is full
      return collect(oldest());
    ++i;
    check(caller_.request(requests_.front(), how), slots_[next_].request); // waits for room
    count(slots_[next_].began);
  }

  void send(uint32_t i) {
    const uint32_t way = load_.is_mixed        ? static_cast<uint32_t>(random_()) % 8
                         : load_.in_flight > 1 ? 0
                                               : 1;
    if (way < 6 && way != 1 && way != 2 && load_.in_flight > 1) {
      Slot &slot = next_slot();
      collect(slot);
      const RequestOptions how = make_request(slot.request, load_, random_, ++number_);
      slot.began = now();
      if (auto pending = caller_.try_request_async(slot.request, how)) {
        slot.pending.emplace(std::move(*pending));
        return;
      }
      collect_all();
      // Requests that nobody waits for may still take the room. This way to ask waits for room.
      check(caller_.request(slot.request, how), slot.request);
      count(slot.began);
      return;
    }
    collect_all();
    const RequestOptions how = make_request(request_, load_, random_, ++number_);
    const Time began = timetable_.is_used() ? timetable_.wait(i) : now();
    if (way == 7)
      caller_.post(request_, how);
    else if (way == 6) {
      if (!caller_.try_request_async(request_, how)) // and does not wait
        caller_.request(request_, how);
    } else {
      if (way == 2)
        check(caller_.request(request_, how), request_);
      else
        caller_.request(
            request_, [&](std::span<const std::byte> response) { check(response, request_); }, how);
      count(began);
    }
  }

  // Waits some time for a connection. If none comes, the next request tries again.
  void wait_connected() {
    constexpr std::chrono::milliseconds some_time(100);
    if (load_.server < 0)
      caller_.wait_connected(some_time);
    else
      caller_.wait_connected(some_time, static_cast<uint32_t>(load_.server));
  }

  Slot &next_slot() { // the slot of the oldest request, if all are taken
    Slot &slot = slots_[next_++];
    if (next_ == slots_.size())
      next_ = 0;
    return slot;
  }

  // Before this thread waits for room: the room may be where its own responses are. The oldest
  // first.
  void collect_all() {
    for (size_t i = 0; i < slots_.size(); ++i)
      collect(next_slot());
  }

  void collect(Slot &slot) {
    if (!slot.pending)
      return;
    Pending pending = std::move(*slot.pending);
    slot.pending.reset();
    under_way_ -= std::min(under_way_, 1U);
    pending.wait(std::chrono::milliseconds::max(),
                 [&](std::span<const std::byte> response) { check(response, slot.request); });
    count(slot.began);
  }

  Caller &caller_;
  const Load &load_;
  uint32_t seed_; // each thread has another one
  Random random_;
  uint64_t number_;
  Timetable timetable_;
  Score score_;
  Bytes request_; // holds a request that is in no slot
  std::vector<Slot> slots_;
  size_t next_ = 0;
  uint32_t under_way_ = 0;                           // requests that send_together() has under way
  std::vector<std::span<const std::byte>> requests_; // requests that go together
};

} // namespace

void Score::add(const Score &more) {
  right += more.right;
  lost += more.lost;
  not_sent += more.not_sent;
  other += more.other;
  latencies.add(more.latencies);
}

Score run_load(Caller &caller, const Load &load, uint32_t process) {
  if (load.threads == 1) // a thread of its own would be measured as well
    return LoadThread(caller, load, process, 0).run();
  std::vector<Score> scores(load.threads);
  std::vector<std::exception_ptr> errors(load.threads);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < load.threads; ++i)
    threads.emplace_back([&, i] {
      try {
        scores[i] = LoadThread(caller, load, process, i).run();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  Score all;
  for (uint32_t i = 0; i < load.threads; ++i) {
    if (errors[i])
      std::rethrow_exception(errors[i]);
    all.add(scores[i]);
  }
  return all;
}

// SPDX-License-Identifier: MIT
// An opponent of the shared client that uses no RDMA. Processes put requests into shared memory. A
// process in the middle passes them on to a server process, and passes the responses back. So this
// program only copies, sleeps and wakes. Its time is the floor for a program with these three
// parts.
//
// Lesson:  lessons/29_results.md
// By hand: memory_requests     four processes, the one in the middle, and the server

#include "load_processes.hpp"

#include "memory.hpp" // the shared client's ring(), which wakes many at once

#include <rdmacommon/check.hpp>

#include <array>
#include <atomic>
#include <optional>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t longest = 64; // bytes of a request or a response
constexpr uint32_t max_slots = 1 << 16;
constexpr uint32_t bell_count = 32;      // a bell for 32 processes
constexpr std::chrono::minutes limit(1); // for anything to come

enum class State : uint32_t { pending, pending_and_asleep, done };

// The place of a request, and then of its response.
struct alignas(64) Slot {
  std::atomic<State> state;
  std::array<std::byte, longest> bytes;
};

// Numbers of slots, for one process that takes them.
class SlotQueue {
public:
  void put(uint32_t slot) {
    entries_[tail_.fetch_add(1) % max_slots].store(slot + 1); // 0: nothing
  }
  std::optional<uint32_t> take() {
    const uint32_t entry = entries_[head_ % max_slots].exchange(0);
    head_ += entry != 0;
    return entry == 0 ? std::nullopt : std::optional(entry - 1);
  }
  bool is_empty() const { return entries_[head_ % max_slots].load() == 0; }

private:
  alignas(64) std::atomic<uint32_t> tail_;
  alignas(64) uint32_t head_;
  std::array<std::atomic<uint32_t>, max_slots> entries_;
};

// One process that sleeps, and others that wake it.
class Sleeper {
public:
  // Call it when the work for the sleeper is in the queue.
  void wake() {
    if (is_asleep_.load() != 0 && is_asleep_.exchange(0) != 0)
      ring(bell_, ~uint32_t{0});
  }
  void sleep_unless(const auto &has_work) {
    const uint32_t seen = bell_.load();
    is_asleep_ = 1;
    const auto until = Clock::now() + limit;
    if (!has_work())
      sleep_on(bell_, seen, ~uint32_t{0}, until);
    is_asleep_ = 0;
    if (Clock::now() >= until)
      throw Error("the other processes", "nothing comes from them");
  }

private:
  alignas(64) std::atomic<uint32_t> bell_;
  std::atomic<uint32_t> is_asleep_;
};

struct RequestMemory { // zeros in the beginning
  SlotQueue requests, forwarded, responses;
  Sleeper middle, server;
  std::array<std::atomic<uint32_t>, bell_count> bells;
  std::array<Slot, max_slots> slots;
};

void send_requests(RequestMemory &memory, const ProcessLoad &load, uint32_t process,
                   Progress &progress) {
  std::atomic<uint32_t> &bell = memory.bells.at(process / 32);
  std::array<std::byte, longest> request{};
  const std::span expected = std::span(request).first(load.size);
  const auto slot_of = [&](uint32_t number) {
    return process * load.in_flight + number % load.in_flight;
  };
  for (uint32_t sent = 0, received = 0; received < load.requests;) {
    for (; sent < load.requests && sent - received < load.in_flight; ++sent) {
      Slot &slot = memory.slots[slot_of(sent)];
      progress.sends(sent);
      make_request(std::span(slot.bytes).first(load.size), load.size, 0, sent);
      slot.state = State::pending;
      memory.requests.put(slot_of(sent));
    }
    memory.middle.wake();
    const auto until = Clock::now() + limit;
    for (std::atomic<State> &state = memory.slots[slot_of(received)].state; state != State::done;) {
      const uint32_t seen = bell.load();
      State is = State::pending;
      if (state.compare_exchange_strong(is, State::pending_and_asleep) ||
          is == State::pending_and_asleep)
        sleep_on(bell, seen, 1U << process % 32, until);
      if (Clock::now() >= until)
        throw Error("a response", "it does not come");
    }
    // All that has come, so that the next ones go together.
    for (; received < sent; ++received) {
      const Slot &slot = memory.slots[slot_of(received)];
      if (slot.state != State::done)
        break;
      progress.received(received);
      make_request(expected, load.size, 0, received);
      if (!is_response(std::span(slot.bytes).first(load.size), expected))
        throw Error("a response", "it is not to this request");
    }
  }
}

// Until so many requests have been answered.
void pass_on(RequestMemory &memory, uint64_t requests, uint32_t in_flight) {
  while (requests > 0) {
    bool has_sent = false;
    while (const auto slot = memory.requests.take()) {
      memory.forwarded.put(*slot);
      has_sent = true;
    }
    if (has_sent)
      memory.server.wake();
    std::array<uint32_t, bell_count> to_wake{}; // by bell
    bool has_answered = false;
    while (const auto slot = memory.responses.take()) {
      const uint32_t process = *slot / in_flight;
      if (memory.slots[*slot].state.exchange(State::done) == State::pending_and_asleep)
        to_wake.at(process / 32) |= 1U << process % 32;
      has_answered = true;
      --requests;
    }
    for (uint32_t i = 0; i < bell_count; ++i)
      if (to_wake.at(i) != 0)
        ring(memory.bells.at(i), to_wake.at(i));
    if (!has_sent && !has_answered)
      memory.middle.sleep_unless(
          [&] { return !memory.requests.is_empty() || !memory.responses.is_empty(); });
  }
}

void serve_all(RequestMemory &memory, uint64_t requests, uint32_t size) {
  while (requests > 0) {
    bool has_served = false;
    while (const auto slot = memory.forwarded.take()) {
      auto &bytes = memory.slots[*slot].bytes;
      const auto request = bytes; // a copy: the response takes its place
      serve(std::span(request).first(size), bytes);
      memory.responses.put(*slot);
      has_served = true;
      --requests;
    }
    if (has_served)
      memory.middle.wake();
    else
      memory.server.sleep_unless([&] { return !memory.forwarded.is_empty(); });
  }
}

void memory_requests(int argc, char **argv) {
  CommandLine line{"Processes that send requests to a server through shared memory, and one "
                   "process in between."};
  ProcessLoad load;
  load.parse(line, argc, argv);
  const SharedMemory shared(make_shared_memory("memory_requests", sizeof(RequestMemory)).get(),
                            sizeof(RequestMemory));
  RequestMemory &memory = *static_cast<RequestMemory *>(shared.data());
  const uint64_t requests = uint64_t{load.processes} * load.requests;
  const Child server([&](const Link &) { serve_all(memory, requests, load.size); });
  const Child middle([&](const Link &) { pass_on(memory, requests, load.in_flight); });
  run_processes(load, [&](uint32_t process, Progress &progress) {
    progress.ready();
    send_requests(memory, load, process, progress);
    progress.done();
  });
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, memory_requests);
}

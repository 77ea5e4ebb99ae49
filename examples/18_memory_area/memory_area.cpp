// SPDX-License-Identifier: MIT
// 18_memory_area: a worker gives requests to a sender through shared memory, without a lock and
// without a system call. The answers come back in the same slots, in any order.
//
// Lesson:  lessons/18_memory_area.md
// Needs:   nothing: no RDMA device takes part
// Run:     ./lab run 18_memory_area

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

using namespace rdmacommon;
using std::chrono::seconds;

namespace {

// [area]
constexpr uint32_t slot_count = 4, slot_size = 32;

struct Submission {
  uint32_t slot;
  uint32_t length; // bytes of the request
};

struct Answer {
  std::atomic<uint32_t> outcome; // 0: there is none yet. 1: the response is in the slot
  uint32_t length;               // bytes of the response; valid once there is an outcome
};

struct Area {
  std::atomic<uint32_t> submitted;          // submissions since the beginning
  std::array<Submission, slot_count> queue; // submission n is at n % slot_count
  std::array<Answer, slot_count> answers;
  std::array<std::array<char, slot_size>, slot_count> slots;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);
// [area]

// The sender's answer.
std::string upper(std::string text) {
  for (char &letter : text)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

class Worker {
public:
  Worker(Area &area, seconds timeout) : area_(area), timeout_(timeout) {}

  // [put]
  // Writes a request and its submission. The sender does not look at them yet.
  uint32_t put(std::string_view request) {
    if (free_.empty() || request.size() > slot_size)
      throw Error("a request", "there is no room for it");
    const uint32_t slot = free_.back();
    free_.pop_back();
    area_.answers[slot].outcome.store(0, std::memory_order_relaxed);
    std::memcpy(area_.slots[slot].data(), request.data(), request.size());
    area_.queue[put_++ % slot_count] = {.slot = slot,
                                        .length = static_cast<uint32_t>(request.size())};
    return slot;
  }

  // Shows the sender everything that was put. Release: all stores above come before this one.
  void submit() { area_.submitted.store(put_, std::memory_order_release); }
  // [put]

  // [collect]
  // Acquire: all loads after this one see what the sender wrote before.
  bool is_answered(uint32_t slot) const {
    return area_.answers[slot].outcome.load(std::memory_order_acquire) != 0;
  }

  std::string collect(uint32_t slot) {
    for (const auto deadline = deadline_in(timeout_); !is_answered(slot); sched_yield())
      if (std::chrono::steady_clock::now() >= deadline)
        throw Error("the sender", "it does not answer");
    const std::string response(area_.slots[slot].data(), area_.answers[slot].length);
    free_.push_back(slot);
    return response;
  }
  // [collect]

private:
  Area &area_;
  const seconds timeout_;
  uint32_t put_ = 0; // the same as area_.submitted, once submit() was called
  std::vector<uint32_t> free_{3, 2, 1, 0};
};

class Sender {
public:
  explicit Sender(Area &area) : area_(area) {}

  // [serve]
  // Takes all submissions that there are, and answers the shortest request first.
  // @return false if there was none
  bool serve() {
    std::vector<Submission> taken;
    const uint32_t submitted = area_.submitted.load(std::memory_order_acquire);
    for (; taken_ != submitted; ++taken_)
      taken.push_back(area_.queue[taken_ % slot_count]);
    std::ranges::stable_sort(taken, {}, &Submission::length);
    for (const Submission &each : taken)
      answer(each);
    return !taken.empty();
  }

  void answer(const Submission &what) {
    if (what.slot >= slot_count || what.length > slot_size)
      throw Error("a submission", "it makes no sense");
    const std::string request(area_.slots[what.slot].data(), what.length);
    const std::string response = upper(request);
    std::memcpy(area_.slots[what.slot].data(), response.data(), response.size());
    Answer &its = area_.answers[what.slot];
    its.length = static_cast<uint32_t>(response.size());
    its.outcome.store(1, std::memory_order_release); // after the response and its length
    answered_.push_back(response);
  }
  // [serve]

  const std::vector<std::string> &answered() const { return answered_; }

private:
  Area &area_;
  uint32_t taken_ = 0; // submissions. Only the sender has it
  std::vector<std::string> answered_;
};

// Collects a response, and checks it.
std::string collect_right(Worker &worker, uint32_t slot, const std::string &request) {
  const std::string response = worker.collect(slot);
  if (response != upper(request))
    throw Error("the request " + request, "its response is " + response);
  return response;
}

void work_more(Worker &worker, uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; ++round) {
    const std::string request = "round " + std::to_string(round);
    std::array<uint32_t, slot_count> slots{};
    for (uint32_t &slot : slots) {
      slot = worker.put(request);
      worker.submit();
    }
    for (const uint32_t slot : slots)
      collect_right(worker, slot, request);
  }
  std::printf("%u more requests: each has its response\n", rounds * slot_count);
}

// [work]
void work(Area &area, seconds timeout) {
  Worker worker(area, timeout);
  const std::array<std::string, slot_count> words{"elderberry", "fig", "apple", "plum"};
  std::array<uint32_t, slot_count> slots{};
  for (uint32_t i = 0; i < slot_count; ++i)
    slots[i] = worker.put(words[i]);
  worker.submit(); // all four
  for (uint32_t i = 0; i < slot_count; ++i)
    std::printf("slot %u: \"%s\", answered with \"%s\"\n", slots[i], words[i].c_str(),
                collect_right(worker, slots[i], words[i]).c_str());

  const uint32_t slot = worker.put("quince"); // in a slot that was used before
  if (worker.is_answered(slot))
    throw Error("\"quince\"", "it has an answer, and the sender has not seen it");
  worker.submit();
  std::printf("slot %u again: \"quince\", answered with \"%s\"\n", slot,
              collect_right(worker, slot, "quince").c_str());
  work_more(worker, 250);
}
// [work]

// [run]
void memory_area(int argc, char **argv) {
  CommandLine line{"A worker gives requests to a sender through shared memory."};
  seconds timeout{5};
  line.add("--timeout", timeout, "seconds for what the other process has to do");
  line.parse(argc, argv);

  const File file = make_shared_memory("memory_area", sizeof(Area));
  const SharedMemory memory(file.get(), sizeof(Area)); // zeros
  Area &area = *new (memory.data()) Area{};
  Child worker([&](const Link &) { work(area, timeout); });
  Sender sender(area);
  while (sender.serve() || !worker.link().can_receive()) // until the worker has ended
    sched_yield();
  if (worker.wait(timeout) != 0)
    throw Error("the worker", "it has failed");
  std::printf("the sender has answered %zu requests, and first:", sender.answered().size());
  for (uint32_t i = 0; i < slot_count; ++i)
    std::printf(" %s", sender.answered()[i].c_str());
  std::printf("\n");
}
// [run]

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, memory_area);
}

// SPDX-License-Identifier: MIT
// The memory area of lesson 18, and the worker's side: how a process joins the sender, and what it
// writes to its area.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

constexpr uint32_t slot_count = 4, slot_size = 32;

struct Submission {
  uint32_t slot, length;
};

struct Answer {
  std::atomic<uint32_t> outcome; // 0: there is none yet. 1: the response is in the slot
  uint32_t length;
};

struct Area {
  std::atomic<uint32_t> submitted;
  std::array<Submission, slot_count> queue;
  std::array<Answer, slot_count> answers;
  std::array<std::array<char, slot_size>, slot_count> slots;
};

// [map]
// Either side's mapping. A forked child does not get it: so when a process has ended, nobody writes
// to its area any more.
class MappedArea {
public:
  explicit MappedArea(const rdmacommon::File &file) : memory_(file.get(), sizeof(Area)) {
    rdmacommon::check_errno(madvise(memory_.data(), sizeof(Area), MADV_DONTFORK), "madvise");
  }
  Area &operator*() const { return *std::launder(static_cast<Area *>(memory_.data())); }
  Area *operator->() const { return &**this; }

private:
  rdmacommon::SharedMemory memory_;
};
// [map]

class Worker {
public:
  // [join]
  // Joins: sends a descriptor of this very process, and receives the area.
  Worker(const rdmacommon::Link &sender, std::chrono::seconds timeout) : timeout_(timeout) {
    const rdmacommon::File self(rdmacommon::check_errno(
        static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)), "pidfd_open"));
    sender.send("hello", std::array{self.get()});
    std::vector<rdmacommon::File> files;
    if (sender.receive(timeout, files, 1) != "welcome")
      throw rdmacommon::Error("the sender", "it does not let this process join");
    area_ = std::make_unique<MappedArea>(files[0]);
  }
  // [join]

  std::string die_at; // for the demonstration: the point in the code where SIGKILL comes

  uint32_t put(std::string_view request) {
    if (free_.empty() || request.size() > slot_size)
      throw rdmacommon::Error("a request", "there is no room for it");
    const uint32_t slot = free_.back();
    free_.pop_back();
    area().answers[slot].outcome.store(0, std::memory_order_relaxed);
    std::memcpy(area().slots[slot].data(), request.data(), request.size());
    reach("request written");
    area().queue[put_++ % slot_count] = {.slot = slot,
                                         .length = static_cast<uint32_t>(request.size())};
    reach("submission written");
    return slot;
  }

  void submit() {
    area().submitted.store(put_, std::memory_order_release);
    reach("submitted");
  }

  std::string collect(uint32_t slot) {
    const auto deadline = rdmacommon::deadline_in(timeout_);
    for (; area().answers[slot].outcome.load(std::memory_order_acquire) == 0; sched_yield())
      if (std::chrono::steady_clock::now() >= deadline)
        throw rdmacommon::Error("the sender", "it does not answer");
    free_.push_back(slot);
    return {area().slots[slot].data(), area().answers[slot].length};
  }

  std::string request(std::string_view text) {
    const uint32_t slot = put(text);
    submit();
    return collect(slot);
  }

  Area &area() const { return **area_; }

private:
  void reach(std::string_view point) const {
    if (point == die_at)
      raise(SIGKILL);
  }

  const std::chrono::seconds timeout_;
  std::unique_ptr<MappedArea> area_;
  uint32_t put_ = 0;
  std::vector<uint32_t> free_{3, 2, 1, 0};
};

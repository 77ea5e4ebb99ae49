// SPDX-License-Identifier: MIT
// The sender: it squares the numbers that workers submit, wakes the workers that sleep, and sleeps
// when there is nothing to do.
#pragma once

#include "bell.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

class Sender {
public:
  Sender(std::vector<Area *> areas, Board &board, int doorbell)
      : areas_(std::move(areas)), board_(board), doorbell_(doorbell) {}

  std::function<void()> before_sleep = [] {};

  // [serve]
  // Takes and answers all requests that there are.
  // @return false if there was none
  bool serve() {
    uint32_t answered = 0; // workers, as bits
    for (uint32_t i = 0; i < areas_.size(); ++i)
      if (areas_[i]->submitted.load(std::memory_order_acquire) != taken_[i]) {
        ++taken_[i];
        areas_[i]->number *= areas_[i]->number;
        areas_[i]->is_answered.store(1, std::memory_order_release);
        answered |= 1U << i;
      }
    if (answered != 0)
      wake(answered);
    return answered != 0;
  }

  void wake(uint32_t answered) {
    std::atomic_thread_fence(std::memory_order_seq_cst); // said above; then look
    uint32_t to_wake = 0;
    for (uint32_t i = 0; i < areas_.size(); ++i)
      if ((answered >> i & 1) != 0 && areas_[i]->sleeps.load(std::memory_order_relaxed) != 0) {
        areas_[i]->sleeps.store(0, std::memory_order_relaxed);
        to_wake |= 1U << i;
      }
    if (to_wake == 0)
      return;
    ring(board_.bell, to_wake);
    ++call_count_;
  }
  // [serve]

  // [sleep]
  // Until the doorbell rings, or one of these links has something to hear.
  void sleep(const std::vector<const rdmacommon::Link *> &links, std::chrono::seconds timeout) {
    std::vector<pollfd> files{{.fd = doorbell_, .events = POLLIN, .revents = 0}};
    for (const rdmacommon::Link *link : links)
      files.push_back({.fd = link->fd(), .events = POLLIN, .revents = 0});
    board_.is_asleep.store(1); // say it
    if (!has_work()) {         // then look
      before_sleep();
      if (poll(files.data(), files.size(), static_cast<int>(1000 * timeout.count())) == 0)
        throw rdmacommon::Error("the sender",
                                has_work() ? "it has missed a wake" : "there is no request");
      ++sleep_count_;
    }
    board_.is_asleep.store(0, std::memory_order_relaxed);
    eventfd_t count;
    eventfd_read(doorbell_, &count); // it may have rung, or not
  }

  bool has_work() const {
    for (uint32_t i = 0; i < areas_.size(); ++i)
      if (areas_[i]->submitted.load() != taken_[i])
        return true;
    return false;
  }
  // [sleep]

  uint32_t call_count() const { return call_count_; } // calls of the kernel to wake workers
  uint32_t sleep_count() const { return sleep_count_; }

private:
  const std::vector<Area *> areas_; // by worker
  Board &board_;
  const int doorbell_;
  std::array<uint32_t, worker_count> taken_{};
  uint32_t call_count_ = 0, sleep_count_ = 0;
};

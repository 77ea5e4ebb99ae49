// SPDX-License-Identifier: MIT
// A worker: a child process with a Caller. It is forked before there is any RDMA in this process
// (lesson 15).
#pragma once

#include "load.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmashared/caller.hpp>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The longest wait of a worker for its parent: rounds before its own can take as long as --seconds.
// If the parent ends, so does the child.
constexpr std::chrono::hours longest_wait(24);

class WorkerProcess {
public:
  WorkerProcess(rdmashared::Waiting waiting, const Load &load, uint32_t number) {
    auto [sender_end, worker_end] = rdmacommon::make_link();
    sender_end_ = std::move(sender_end);
    child_ =
        std::make_unique<rdmacommon::Child>([&, end = &worker_end](const rdmacommon::Link &parent) {
          parent.receive(longest_wait); // there is a sender
          rdmashared::Caller caller(std::move(*end), waiting);
          parent.send("joined");
          parent.receive(longest_wait); // all have joined
          const Score score = run_load(caller, load, number);
          parent.send({reinterpret_cast<const char *>(&score), sizeof score});
        });
  }
  rdmacommon::Link take_link() { return std::move(sender_end_); }
  void go_on() const { child_->link().send("go on"); }
  void wait_until_joined(std::chrono::milliseconds limit) const { child_->link().receive(limit); }
  // When it has its last response.
  Score score(std::chrono::milliseconds limit) const {
    const std::string text = child_->link().receive(limit);
    Score score;
    if (text.size() != sizeof score)
      throw rdmacommon::Error("a worker", "it has failed");
    std::memcpy(&score, text.data(), sizeof score);
    return score;
  }
  void end(std::chrono::milliseconds limit) {
    if (child_->wait(limit) != 0)
      throw rdmacommon::Error("a worker", "it has failed");
  }

private:
  rdmacommon::Link sender_end_;
  std::unique_ptr<rdmacommon::Child> child_;
};

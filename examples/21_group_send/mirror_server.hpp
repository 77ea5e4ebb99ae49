// SPDX-License-Identifier: MIT
// The server's loop: takes runs as they come, and gives their slots back.
#pragma once

#include "inbox.hpp"
#include "group_side.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <array>
#include <chrono>
#include <deque>
#include <span>

// [serve]
class Server {
public:
  Server(Side &side, Inbox &inbox) : side_(side), inbox_(inbox) {}

  // Takes runs until `has_come` is true: the client's first, or its last message is there.
  void serve_until(bool (Inbox::*has_come)() const) {
    std::array<ibv_wc, 256> batch;
    while (!(inbox_.*has_come)() || !owed_.empty()) {
      const size_t count = side_.wait(batch);
      for (const ibv_wc &wc : std::span(batch.data(), count)) {
        rdmacommon::check_wc(wc, "a request");
        if ((wc.opcode & IBV_WC_RECV) != 0)
          take(wc);
        else
          side_.queue.completed(wc);
      }
      // In this order: a client that has its slots back may send as many runs again at once.
      side_.receives->repost();
      give_back();
    }
  }

  // Waits until the client has the last credit. Only then may this server say over TCP that it has
  // finished: TCP is another connection, and may be faster than the credit.
  void finish(std::chrono::milliseconds timeout) {
    std::array<ibv_wc, 16> batch;
    while (side_.queue.done() != side_.queue.added()) {
      const size_t count =
          rdmacommon::wait_for_completions(side_.cq.get(), batch, "the last credit", timeout);
      for (const ibv_wc &wc : std::span(batch.data(), count)) {
        rdmacommon::check_wc(wc, "a request");
        if ((wc.opcode & IBV_WC_RECV) != 0)
          throw rdmacommon::Error("the client", "it sends more after its end");
        side_.queue.completed(wc);
      }
    }
  }

private:
  void take(const ibv_wc &wc) {
    const rdmacommon::Run run = side_.receives->received(wc);
    inbox_.take(run, wc.byte_len);
    // Runs that lie side by side go back as one.
    if (!owed_.empty() && owed_.back().first + owed_.back().count == run.first &&
        owed_.back().count + run.count < rdmacommon::Run::count_limit)
      owed_.back().count += run.count;
    else
      owed_.push_back(run);
  }

  void give_back() {
    // The last credit asks for a completion: finish() waits for it.
    const unsigned flags = inbox_.has_ended() ? IBV_SEND_SIGNALED : 0;
    // There are no data: the immediate is the credit.
    for (; !owed_.empty() && side_.queue.room() > 0; owed_.pop_front())
      rdmacommon::add_run(side_.queue, side_.mirror, owed_.front(), 0, flags);
    side_.queue.post();
  }

  Side &side_;
  Inbox &inbox_;
  std::deque<rdmacommon::Run> owed_; // processed, but not given back yet
};
// [serve]

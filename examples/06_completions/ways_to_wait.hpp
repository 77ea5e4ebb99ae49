// SPDX-License-Identifier: MIT
// The ways in which a program can wait for messages. Each takes `messages` completions of receives.
#pragma once

#include "epoll_sleep.hpp"

#include <array>

constexpr int batch = 16;

inline void poll_singly(const Side &side, int messages) {
  const Deadline deadline(side.timeout);
  while (messages > 0) {
    ibv_wc done{};
    if (rdmacommon::check_count(ibv_poll_cq(side.received, 1, &done), "ibv_poll_cq") == 0) {
      deadline.check("a message");
      continue;
    }
    rdmacommon::check_wc(done, "a receive");
    --messages;
  }
}

// Takes what is there, but not more than `batch`.
inline int poll_batch_once(const Side &side) {
  std::array<ibv_wc, batch> done;
  const int count =
      rdmacommon::check_count(ibv_poll_cq(side.received, batch, done.data()), "ibv_poll_cq");
  for (int i = 0; i < count; ++i)
    rdmacommon::check_wc(done[i], "a receive");
  return count;
}

inline void poll_batches(const Side &side, int messages) {
  const Deadline deadline(side.timeout);
  while (messages > 0) {
    const int count = poll_batch_once(side);
    if (count == 0)
      deadline.check("a message");
    messages -= count;
  }
}

// The completion is looked at where it lies; of its fields, only those that are asked for are read.
inline void poll_extended(const Side &side, int messages) {
  const Deadline deadline(side.timeout);
  while (messages > 0) {
    ibv_poll_cq_attr none{};
    const int rc = ibv_start_poll(side.extended, &none);
    if (rc == ENOENT) { // nothing there, and so no ibv_end_poll
      deadline.check("a message");
      continue;
    }
    rdmacommon::check_rc(rc, "ibv_start_poll");
    const ibv_wc_status status = side.extended->status;
    ibv_end_poll(side.extended); // now its place in the queue is free
    rdmacommon::check_wc({.status = status}, "a receive");
    --messages;
  }
}

// [sleep]
inline void receive_by_events(const Side &side, int messages, int solicited_only) {
  while (messages > 0) {
    if (const int count = poll_batch_once(side)) {
      messages -= count;
      continue;
    }
    rdmacommon::check_rc(ibv_req_notify_cq(side.received, solicited_only), "ibv_req_notify_cq");
    if (const int count = poll_batch_once(side)) { // came before the arming
      messages -= count;
      continue;
    }
    if (!side.sleep.until_event(side.timeout))
      throw rdmacommon::Error("a message", "no event in time");
    while (take_event(side.channel))
      ;
  }
}
// [sleep]

inline void sleep_for_each(const Side &side, int messages) {
  receive_by_events(side, messages, 0);
}

inline void sleep_for_solicited(const Side &side, int messages) {
  receive_by_events(side, messages, 1);
}

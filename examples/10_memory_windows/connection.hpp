// SPDX-License-Identifier: MIT
// 10_memory_windows: a connection for each case, and waiting for what may fail.
#pragma once

#include "grant.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <optional>

// A failure breaks the connection, so each case has one of its own.
struct Connection {
  Connection(const rdmacommon::Port &port, ibv_pd *pd)
      : sent(rdmacommon::create_cq(port.context.get(), 4)),
        received(rdmacommon::create_cq(port.context.get(), 4)),
        qp(rdmacommon::create_rc_qp(pd, sent.get(), received.get(),
                                    {.max_send_wr = 4,
                                     .max_recv_wr = 4,
                                     .max_send_sge = 1,
                                     .max_recv_sge = 1,
                                     .max_inline_data = sizeof(Grant)})) {}
  rdmacommon::unique_cq sent, received;
  rdmacommon::unique_qp qp;
};

// The next completion, whatever its status, or none within the time: here both are outcomes, not
// errors.
inline std::optional<ibv_wc> next_completion(ibv_cq *cq, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  ibv_wc done{};
  while (rdmacommon::poll_batch(cq, {&done, 1}) == 0)
    if (std::chrono::steady_clock::now() > deadline)
      return std::nullopt;
  return done;
}

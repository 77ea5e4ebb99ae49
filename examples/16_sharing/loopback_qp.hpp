// SPDX-License-Identifier: MIT
// 16_sharing: registered memory, and a queue pair that is its own peer.
#pragma once

#include "fd_passing.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <cstddef>

struct LoopbackQp {
  static constexpr int access = IBV_ACCESS_LOCAL_WRITE;

  LoopbackQp(const rdmacommon::DeviceOptions &options, void *memory, size_t length)
      : port(rdmacommon::open_port(options)), pd(rdmacommon::alloc_pd(port.context.get())),
        mr(rdmacommon::reg_mr(pd.get(), memory, length, access)),
        cq(rdmacommon::create_cq(port.context.get(), 8)),
        qp(rdmacommon::create_rc_qp(
            pd.get(), cq.get(),
            {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1})) {
    rdmacommon::connect_to_itself(qp.get(), port);
  }

  void wait_for_message(Limit limit) const {
    const auto done = rdmacommon::poll_within(cq.get(), limit);
    if (!done)
      throw rdmacommon::Error("a message", "it has not come in time");
    rdmacommon::check_wc(*done, "a request");
  }

  rdmacommon::Port port;
  rdmacommon::unique_pd pd;
  rdmacommon::unique_mr mr;
  rdmacommon::unique_cq cq;
  rdmacommon::unique_qp qp;
};

// SPDX-License-Identifier: MIT
// A queue pair that is connected to itself, for what one side can show alone.
#pragma once

#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

struct Loopback {
  static constexpr int depth = 128; // SENDs that can be posted, and as many receives

  // Its SENDs complete in `sends`, which has room for as many as asked, or more.
  Loopback(const rdmacommon::Port &port, ibv_pd *pd, ibv_comp_channel *channel, int room)
      : sends(rdmacommon::create_cq(port.context.get(), room)),
        receives(rdmacommon::create_cq(port.context.get(), 256, channel)),
        qp(rdmacommon::create_rc_qp(pd, sends.get(), receives.get(),
                                    {.max_send_wr = depth, .max_recv_wr = depth})) {
    rdmacommon::connect_to_itself(qp.get(), port);
  }

  rdmacommon::unique_cq sends, receives;
  rdmacommon::unique_qp qp;
};

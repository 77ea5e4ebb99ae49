// SPDX-License-Identifier: MIT
// A queue pair that is connected to itself, for what one side can show alone.
#pragma once

#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

struct Loopback {
  // Its SENDs complete in `sends`, which has room for as many as asked, or more.
  Loopback(const rdmacommon::Port &port, ibv_pd *pd, ibv_comp_channel *channel, int room)
      : sends(rdmacommon::create_cq(port.context.get(), room)),
        receives(rdmacommon::create_cq(port.context.get(), 256, channel)),
        qp(rdmacommon::create_rc_qp(pd, sends.get(), receives.get(),
                                    {.max_send_wr = 128, .max_recv_wr = 128})) {
    rdmacommon::to_init(qp.get(), port);
    const rdmacommon::Endpoint self = rdmacommon::endpoint_of(qp.get(), port, 1);
    rdmacommon::to_rtr(qp.get(), port, self);
    rdmacommon::to_rts(qp.get(), self.psn);
  }

  rdmacommon::unique_cq sends, receives;
  rdmacommon::unique_qp qp;
};

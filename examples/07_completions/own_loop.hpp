// A queue pair that is connected to itself, for what one side can show alone.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

struct OwnLoop {
  // Its SENDs complete in `sends`, which has room for as many as asked, or more.
  OwnLoop(const rdmacommon::Port &port, ibv_pd *pd, ibv_comp_channel *channel, int room)
      : sends(create_cq(port, room, nullptr)), receives(create_cq(port, 256, channel)) {
    ibv_qp_init_attr attr{.send_cq = sends.get(),
                          .recv_cq = receives.get(),
                          .cap = {.max_send_wr = 128, .max_recv_wr = 128},
                          .qp_type = IBV_QPT_RC};
    qp.reset(rdmacommon::check_ptr(ibv_create_qp(pd, &attr), "ibv_create_qp"));
    rdmacommon::to_init(qp.get(), port);
    const rdmacommon::Endpoint self = rdmacommon::endpoint_of(qp.get(), port, 1);
    rdmacommon::to_rtr(qp.get(), port, self);
    rdmacommon::to_rts(qp.get(), self.psn);
  }

  rdmacommon::unique_cq sends, receives;
  rdmacommon::unique_qp qp;

private:
  static rdmacommon::unique_cq create_cq(const rdmacommon::Port &port, int room,
                                         ibv_comp_channel *channel) {
    return rdmacommon::unique_cq(rdmacommon::check_ptr(
        ibv_create_cq(port.context.get(), room, nullptr, channel, 0), "ibv_create_cq"));
  }
};

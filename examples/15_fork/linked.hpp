// SPDX-License-Identifier: MIT
// 15_fork: two processes with a queue pair each, which send each other their endpoints over a link.
#pragma once

#include "child.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

// A queue pair that is connected over a link, as lesson 02 does it over TCP.
struct Linked {
  Linked(const rdmacommon::DeviceOptions &options, void *memory, size_t length, ibv_qp_cap cap,
         int access = IBV_ACCESS_LOCAL_WRITE)
      : port(rdmacommon::open_port(options)), pd(rdmacommon::alloc_pd(port.context.get())),
        mr(rdmacommon::reg_mr(pd.get(), memory, length, access)),
        cq(rdmacommon::create_cq(port.context.get(), 64)),
        qp(rdmacommon::create_rc_qp(pd.get(), cq.get(), cap)) {
    rdmacommon::to_init(qp.get(), port, access & ~IBV_ACCESS_LOCAL_WRITE);
  }
  void send_endpoint(const Link &peer) const {
    peer.send(to_line(rdmacommon::endpoint_of(qp.get(), port, psn)));
  }
  void to_rtr(const Link &peer, Limit limit) const {
    rdmacommon::to_rtr(qp.get(), port, rdmacommon::parse_endpoint(peer.receive(limit)));
  }

  rdmacommon::Port port;
  rdmacommon::unique_pd pd;
  rdmacommon::unique_mr mr;
  rdmacommon::unique_cq cq;
  rdmacommon::unique_qp qp;
  uint32_t psn = rdmacommon::random_psn();
};

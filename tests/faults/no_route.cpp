// SPDX-License-Identifier: MIT
// Preloaded: turns each ROUTE_RESOLVED into the ROUTE_ERROR that a subnet manager without an answer
// causes. On RoCE there is no such event: rdma_resolve_route() itself fails, or the route is known
// (kernel, cma_resolve_iboe_route).
#include "next.hpp"

#include <rdma/rdma_cma.h>

#include <cerrno>

extern "C" __attribute__((visibility("default"))) int rdma_get_cm_event(rdma_event_channel *channel,
                                                                        rdma_cm_event **event) {
  static const auto real = REAL(rdma_get_cm_event);
  const int rc = real(channel, event);
  if (rc == 0 && (*event)->event == RDMA_CM_EVENT_ROUTE_RESOLVED) {
    (*event)->event = RDMA_CM_EVENT_ROUTE_ERROR;
    (*event)->status = -ETIMEDOUT;
  }
  return rc;
}

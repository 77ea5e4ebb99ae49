// SPDX-License-Identifier: MIT
// rdma_cm: each call that can fail.

#include "counted.hpp"
#include "channel_events.hpp"
#include "interpose.hpp"

namespace inject {

template <typename Real> void around(call::rdma_destroy_ep kind, Real real, rdma_cm_id *id) {
  Call call(kind.name);
  call.ended(id);
  call.ended(&id->qp);
  call.ended(&id->srq);
  real();
}

template <typename Real> void around(call::rdma_destroy_qp kind, Real real, rdma_cm_id *id) {
  Call call(kind.name);
  call.ended(&id->qp);
  real();
}

template <typename Real> void around(call::rdma_destroy_srq kind, Real real, rdma_cm_id *id) {
  Call call(kind.name);
  call.ended(&id->srq);
  real();
}

template <typename Real>
int around(call::rdma_get_cm_event kind, Real real, rdma_event_channel *channel,
           rdma_cm_event **what) {
  static const auto acknowledge = REAL(rdma_ack_cm_event);
  static const auto destroy = REAL(rdma_destroy_id);
  const int status = event(kind.name, channel->fd, real, [&] {
    // A request comes with an id of its own.
    rdma_cm_id *id = (*what)->event == RDMA_CM_EVENT_CONNECT_REQUEST ? (*what)->id : nullptr;
    acknowledge(*what);
    if (id)
      destroy(id);
  });
  if (!status && (*what)->event == RDMA_CM_EVENT_CONNECT_REQUEST)
    Call(kind.name).made((*what)->id);
  return status;
}

} // namespace inject

using namespace inject;

extern "C" {
#define CM_CALL INTERPOSE
#include "calls.def"
}

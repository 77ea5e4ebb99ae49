// SPDX-License-Identifier: MIT
// The objects of rdma_cm: event channels and ids, and the events that have to be acknowledged.

#include "interpose.hpp"
#include "tracked.hpp"

namespace lint {
namespace {

namespace call = preload::call;

void made_id(const void *id, const void *channel) {
  const Locked lock;
  add<CmId>(id, "id", nullptr).channel = channel;
}

// A connect request's event is acknowledged for the listener.
const void *owner_of(const rdma_cm_event &event) {
  return event.listen_id ? event.listen_id : event.id;
}

void made(call::rdma_create_event_channel, rdma_event_channel *channel) {
  const Locked lock;
  add<CmChannel>(channel, "event channel ", nullptr);
}
void made(call::rdma_create_id, int, rdma_event_channel *channel, rdma_cm_id **id, void *,
          rdma_port_space) {
  made_id(*id, channel);
}
void made(call::rdma_get_cm_event, int, rdma_event_channel *channel, rdma_cm_event **event) {
  if ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) // it comes with an id of its own
    made_id((*event)->id, channel);
  const Locked lock;
  if (const auto its = find<CmId>(owner_of(**event)))
    its->events.take();
}

} // namespace
} // namespace lint

#include "checked.hpp"

namespace lint {

// It destroys the id by rdma_destroy_id.
template <typename Real> void around(call::rdma_destroy_ep, Real real, rdma_cm_id *) {
  real();
}

template <typename Real> int around(call::rdma_destroy_id kind, Real real, rdma_cm_id *id) {
  {
    const Locked lock;
    // An id without a channel of the program's keeps its last event, and acknowledges it itself.
    if (const auto its = find<CmId>(id); its && its->live && id->event)
      its->events.acknowledge(1);
  }
  const auto destroys = [&] {
    if (id->qp) {
      const Locked lock;
      if (const auto qp = find<Qp>(id->qp); qp && qp->live)
        report(rules::destroy_order, "rdma_destroy_id, but its " + qp->name + " still exists",
               qp->name, qp->history());
    }
    return real();
  };
  return checked(kind, kind.name, destroys, id);
}

template <typename Real> int around(call::rdma_ack_cm_event, Real real, rdma_cm_event *event) {
  {
    const Locked lock;
    if (const auto its = find<CmId>(owner_of(*event)))
      its->events.acknowledge(1);
  }
  return real();
}

} // namespace lint

using namespace lint;

extern "C" {
#define CM_CALL INTERPOSE
#include "calls.def"
}

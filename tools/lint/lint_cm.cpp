// SPDX-License-Identifier: MIT
// The objects of rdma_cm: event channels and ids, and the events that have to be acknowledged.

#include "../trace/next.hpp"
#include "tracked.hpp"

#include <cerrno>
#include <rdma/rdma_cma.h>

using namespace lint;

namespace {

void made_id(const void *id, const void *channel) {
  const Locked lock;
  CmId &its = add<CmId>(id, "id", nullptr);
  its.channel = channel;
}

} // namespace

extern "C" {

rdma_event_channel *rdma_create_event_channel() {
  static const auto real = REAL(rdma_create_event_channel);
  rdma_event_channel *channel = real();
  if (channel) {
    const Locked lock;
    add<CmChannel>(channel, "event channel ", nullptr);
  }
  return channel;
}

void rdma_destroy_event_channel(rdma_event_channel *channel) {
  static const auto real = REAL(rdma_destroy_event_channel);
  Destruction end("rdma_destroy_event_channel", channel);
  if (end.refused())
    return;
  real(channel);
  end.ended(0);
}

int rdma_create_id(rdma_event_channel *channel, rdma_cm_id **id, void *context,
                   rdma_port_space space) {
  static const auto real = REAL(rdma_create_id);
  const int status = real(channel, id, context, space);
  if (!status)
    made_id(*id, channel);
  return status;
}

int rdma_destroy_id(rdma_cm_id *id) {
  static const auto real = REAL(rdma_destroy_id);
  {
    const Locked lock;
    // An id without a channel of the program's keeps its last event, and acknowledges it itself.
    if (const auto its = find<CmId>(id); its && its->live && id->event)
      its->events.acknowledge(1);
  }
  Destruction end("rdma_destroy_id", id);
  if (end.refused())
    return errno = EINVAL, -1;
  if (id->qp) {
    const Locked lock;
    if (const auto qp = find<Qp>(id->qp); qp && qp->live)
      report(rules::destroy_order, "rdma_destroy_id, but its " + qp->name + " still exists",
             qp->name, qp->history());
  }
  const int status = real(id);
  const int before = errno;
  end.ended(status);
  errno = before;
  return status;
}

int rdma_get_cm_event(rdma_event_channel *channel, rdma_cm_event **what) {
  static const auto real = REAL(rdma_get_cm_event);
  const Use use("rdma_get_cm_event", channel);
  if (use.refused())
    return errno = EINVAL, -1;
  const int status = real(channel, what);
  if (status)
    return status;
  if ((*what)->event == RDMA_CM_EVENT_CONNECT_REQUEST) // it comes with an id of its own
    made_id((*what)->id, channel);
  const Locked lock;
  // A connect request's event is acknowledged for the listener.
  const void *id = (*what)->listen_id ? (*what)->listen_id : (*what)->id;
  if (const auto its = find<CmId>(id))
    its->events.take();
  return status;
}

int rdma_ack_cm_event(rdma_cm_event *what) {
  static const auto real = REAL(rdma_ack_cm_event);
  {
    const Locked lock;
    const void *id = what->listen_id ? what->listen_id : what->id;
    if (const auto its = find<CmId>(id))
      its->events.acknowledge(1);
  }
  return real(what);
}

} // extern "C"

// SPDX-License-Identifier: MIT
// rdma_cm: all of it that makes or changes something.

#include "event.hpp"
#include "interpose.hpp"
#include "names.hpp"
#include "tcp.hpp"

namespace trace {
namespace {

namespace call = preload::call;

std::string parameters(const rdma_conn_param *param) {
  if (!param)
    return "";
  return print(", responder_resources %u, initiator_depth %u, retry_count %u, rnr_retry_count %u, "
               "%u B private data",
               param->responder_resources, param->initiator_depth, param->retry_count,
               param->rnr_retry_count, param->private_data_len);
}

std::string port_space(rdma_port_space space) {
  switch (space) {
  case RDMA_PS_IPOIB:
    return "IPOIB";
  case RDMA_PS_TCP:
    return "TCP";
  case RDMA_PS_UDP:
    return "UDP";
  case RDMA_PS_IB:
    return "IB";
  }
  return std::to_string(space);
}

// ---- what the arguments say

std::string words(call::rdma_create_id, rdma_event_channel *channel, rdma_cm_id **, void *,
                  rdma_port_space space) {
  return (channel ? label(channel) : "synchronous") + ", " + port_space(space);
}
std::string words(call::rdma_migrate_id, rdma_cm_id *id, rdma_event_channel *channel) {
  return label(id) + ", " + label(channel);
}
std::string words(call::rdma_create_ep, rdma_cm_id **, rdma_addrinfo *res, ibv_pd *,
                  ibv_qp_init_attr *) {
  return address(res->ai_dst_addr ? res->ai_dst_addr : res->ai_src_addr);
}
std::string words(call::rdma_bind_addr, rdma_cm_id *id, sockaddr *where) {
  return label(id) + ", " + address(where);
}
std::string words(call::rdma_resolve_addr, rdma_cm_id *id, sockaddr *, sockaddr *destination,
                  int timeout_ms) {
  return label(id) + ", " + address(destination) + print(", %d ms", timeout_ms);
}
std::string words(call::rdma_resolve_route, rdma_cm_id *id, int timeout_ms) {
  return label(id) + print(", %d ms", timeout_ms);
}
std::string words(call::rdma_listen, rdma_cm_id *id, int backlog) {
  return label(id) + print(", backlog %d", backlog);
}
std::string words(call::rdma_get_request, rdma_cm_id *listener, rdma_cm_id **) {
  return label(listener);
}
std::string words(call::rdma_connect, rdma_cm_id *id, rdma_conn_param *param) {
  return label(id) + parameters(param);
}
std::string words(call::rdma_accept, rdma_cm_id *id, rdma_conn_param *param) {
  return label(id) + parameters(param);
}
std::string words(call::rdma_reject, rdma_cm_id *id, const void *, std::uint8_t length) {
  return label(id) + print(", %u B private data", length);
}
std::string words(call::rdma_create_qp, rdma_cm_id *id, ibv_pd *pd, ibv_qp_init_attr *) {
  return label(id) + ", " + label(pd);
}
std::string words(call::rdma_create_qp_ex, rdma_cm_id *id, ibv_qp_init_attr_ex *attr) {
  return label(id) + ", " + label(attr->pd);
}
std::string words(call::rdma_create_srq, rdma_cm_id *id, ibv_pd *pd, ibv_srq_init_attr *) {
  return label(id) + ", " + label(pd);
}
std::string words(call::rdma_create_srq_ex, rdma_cm_id *id, ibv_srq_init_attr_ex *attr) {
  return label(id) + ", " + label(attr->pd);
}
std::string words(call::rdma_join_multicast, rdma_cm_id *id, sockaddr *group, void *) {
  return label(id) + ", " + address(group);
}
std::string words(call::rdma_join_multicast_ex, rdma_cm_id *id, rdma_cm_join_mc_attr_ex *attr,
                  void *) {
  return label(id) + ", " + address(attr->addr);
}
std::string words(call::rdma_leave_multicast, rdma_cm_id *id, sockaddr *group) {
  return label(id) + ", " + address(group);
}
std::string words(call::rdma_ack_cm_event, rdma_cm_event *event) {
  return cm_event(event->event);
}

// ---- what came of the call

std::string made(Event &, call::rdma_create_event_channel, rdma_event_channel *channel) {
  return new_label("events", channel);
}
std::string made(Event &, call::rdma_create_id, int, rdma_event_channel *, rdma_cm_id **id, void *,
                 rdma_port_space) {
  return new_label("id", *id);
}
std::string made(Event &, call::rdma_create_ep, int, rdma_cm_id **id, rdma_addrinfo *, ibv_pd *,
                 ibv_qp_init_attr *) {
  return label(*id);
}
std::string made(Event &, call::rdma_get_request, int, rdma_cm_id *, rdma_cm_id **id) {
  return label(*id);
}
template <typename... Args>
std::string made(Event &, call::rdma_create_qp, int, rdma_cm_id *id, Args...) {
  return label(id->qp);
}
template <typename... Args>
std::string made(Event &, call::rdma_create_qp_ex, int, rdma_cm_id *id, Args...) {
  return label(id->qp);
}
template <typename... Args>
std::string made(Event &, call::rdma_create_srq, int, rdma_cm_id *id, Args...) {
  return label(id->srq);
}
template <typename... Args>
std::string made(Event &, call::rdma_create_srq_ex, int, rdma_cm_id *id, Args...) {
  return label(id->srq);
}
std::string made(Event &, call::rdma_listen, int, rdma_cm_id *, int) {
  announce_listening();
  return "";
}
std::string made(Event &event, call::rdma_get_cm_event, int, rdma_event_channel *,
                 rdma_cm_event **what) {
  const rdma_cm_event &got = **what;
  if (got.event == RDMA_CM_EVENT_CONNECT_REQUEST) // it comes with an id of its own
    new_label("id", got.id);
  event.json([&](Json &json) {
    json.string("event", cm_event(got.event))
        .raw("status", std::to_string(got.status))
        .string("id", label(got.id));
  });
  return cm_event(got.event) + " " + label(got.id) +
         (got.status ? print(", status %d", got.status) : "");
}

} // namespace
} // namespace trace

#include "recorded.hpp"

namespace trace {

template <typename Real>
void around(call::rdma_destroy_event_channel kind, Real real, rdma_event_channel *channel) {
  Event event(kind.name);
  event.text([&] { return words(kind, channel); });
  event.note([&] { end_label("events", channel); });
  real();
  event.ended();
}

template <typename Real> int around(call::rdma_destroy_id kind, Real real, rdma_cm_id *id) {
  Event event(kind.name);
  event.text([&] { return words(kind, id); });
  event.note([&] { end_label("id", id); });
  return event.minus_one(real());
}

} // namespace trace

using namespace trace;

extern "C" {
#define CM_CALL INTERPOSE
#include "calls.def"
}

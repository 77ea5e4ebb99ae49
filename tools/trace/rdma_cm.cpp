// SPDX-License-Identifier: MIT
// rdma_cm: all of it that makes or changes something.

#include "event.hpp"
#include "names.hpp"
#include "next.hpp"
#include "tcp.hpp"

#include <rdma/rdma_cma.h>

using namespace trace;

namespace {

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

} // namespace

extern "C" {

rdma_event_channel *rdma_create_event_channel() {
  static const auto real = REAL(rdma_create_event_channel);
  Event event("rdma_create_event_channel");
  rdma_event_channel *channel = event.null(real());
  if (channel)
    event.result([&] { return new_label("events", channel); });
  return channel;
}

void rdma_destroy_event_channel(rdma_event_channel *channel) {
  static const auto real = REAL(rdma_destroy_event_channel);
  Event event("rdma_destroy_event_channel");
  event.text([&] { return label(channel); });
  event.note([&] { end_label("events", channel); });
  real(channel);
  event.ended();
}

int rdma_create_id(rdma_event_channel *channel, rdma_cm_id **id, void *context,
                   rdma_port_space space) {
  static const auto real = REAL(rdma_create_id);
  Event event("rdma_create_id");
  event.text([&] { return (channel ? label(channel) : "synchronous") + ", " + port_space(space); });
  const int status = event.minus_one(real(channel, id, context, space));
  if (!status)
    event.result([&] { return new_label("id", *id); });
  return status;
}

int rdma_destroy_id(rdma_cm_id *id) {
  static const auto real = REAL(rdma_destroy_id);
  Event event("rdma_destroy_id");
  event.text([&] { return label(id); });
  event.note([&] { end_label("id", id); });
  return event.minus_one(real(id));
}

int rdma_migrate_id(rdma_cm_id *id, rdma_event_channel *channel) {
  static const auto real = REAL(rdma_migrate_id);
  Event event("rdma_migrate_id");
  event.text([&] { return label(id) + ", " + label(channel); });
  return event.minus_one(real(id, channel));
}

int rdma_create_ep(rdma_cm_id **id, rdma_addrinfo *res, ibv_pd *pd, ibv_qp_init_attr *attr) {
  static const auto real = REAL(rdma_create_ep);
  Event event("rdma_create_ep");
  event.text([&] { return address(res->ai_dst_addr ? res->ai_dst_addr : res->ai_src_addr); });
  const int status = event.minus_one(real(id, res, pd, attr));
  if (!status)
    event.result([&] { return label(*id); });
  return status;
}

void rdma_destroy_ep(rdma_cm_id *id) {
  static const auto real = REAL(rdma_destroy_ep);
  Event event("rdma_destroy_ep");
  event.text([&] { return label(id); });
  real(id);
  event.ended();
}

int rdma_bind_addr(rdma_cm_id *id, sockaddr *where) {
  static const auto real = REAL(rdma_bind_addr);
  Event event("rdma_bind_addr");
  event.text([&] { return label(id) + ", " + address(where); });
  return event.minus_one(real(id, where));
}

int rdma_resolve_addr(rdma_cm_id *id, sockaddr *source, sockaddr *destination, int timeout_ms) {
  static const auto real = REAL(rdma_resolve_addr);
  Event event("rdma_resolve_addr");
  event.text([&] {
    return print("%s, %s, %d ms", label(id).c_str(), address(destination).c_str(), timeout_ms);
  });
  return event.minus_one(real(id, source, destination, timeout_ms));
}

int rdma_resolve_route(rdma_cm_id *id, int timeout_ms) {
  static const auto real = REAL(rdma_resolve_route);
  Event event("rdma_resolve_route");
  event.text([&] { return print("%s, %d ms", label(id).c_str(), timeout_ms); });
  return event.minus_one(real(id, timeout_ms));
}

int rdma_listen(rdma_cm_id *id, int backlog) {
  static const auto real = REAL(rdma_listen);
  Event event("rdma_listen");
  event.text([&] { return print("%s, backlog %d", label(id).c_str(), backlog); });
  const int status = event.minus_one(real(id, backlog));
  if (!status)
    event.note(announce_listening);
  return status;
}

int rdma_get_request(rdma_cm_id *listener, rdma_cm_id **id) {
  static const auto real = REAL(rdma_get_request);
  Event event("rdma_get_request");
  event.text([&] { return label(listener); });
  const int status = event.minus_one(real(listener, id));
  if (!status)
    event.result([&] { return label(*id); });
  return status;
}

int rdma_connect(rdma_cm_id *id, rdma_conn_param *param) {
  static const auto real = REAL(rdma_connect);
  Event event("rdma_connect");
  event.text([&] { return label(id) + parameters(param); });
  return event.minus_one(real(id, param));
}

int rdma_accept(rdma_cm_id *id, rdma_conn_param *param) {
  static const auto real = REAL(rdma_accept);
  Event event("rdma_accept");
  event.text([&] { return label(id) + parameters(param); });
  return event.minus_one(real(id, param));
}

int rdma_reject(rdma_cm_id *id, const void *data, std::uint8_t length) {
  static const auto real = REAL(rdma_reject);
  Event event("rdma_reject");
  event.text([&] { return print("%s, %u B private data", label(id).c_str(), length); });
  return event.minus_one(real(id, data, length));
}

int rdma_establish(rdma_cm_id *id) {
  static const auto real = REAL(rdma_establish);
  Event event("rdma_establish");
  event.text([&] { return label(id); });
  return event.minus_one(real(id));
}

int rdma_notify(rdma_cm_id *id, ibv_event_type what) {
  static const auto real = REAL(rdma_notify);
  Event event("rdma_notify");
  event.text([&] { return label(id); });
  return event.minus_one(real(id, what));
}

int rdma_disconnect(rdma_cm_id *id) {
  static const auto real = REAL(rdma_disconnect);
  Event event("rdma_disconnect");
  event.text([&] { return label(id); });
  return event.minus_one(real(id));
}

int rdma_create_qp(rdma_cm_id *id, ibv_pd *pd, ibv_qp_init_attr *attr) {
  static const auto real = REAL(rdma_create_qp);
  Event event("rdma_create_qp");
  event.text([&] { return label(id) + ", " + label(pd); });
  const int status = event.minus_one(real(id, pd, attr));
  if (!status)
    event.result([&] { return label(id->qp); });
  return status;
}

int rdma_create_qp_ex(rdma_cm_id *id, ibv_qp_init_attr_ex *attr) {
  static const auto real = REAL(rdma_create_qp_ex);
  Event event("rdma_create_qp_ex");
  event.text([&] { return label(id) + ", " + label(attr->pd); });
  const int status = event.minus_one(real(id, attr));
  if (!status)
    event.result([&] { return label(id->qp); });
  return status;
}

void rdma_destroy_qp(rdma_cm_id *id) {
  static const auto real = REAL(rdma_destroy_qp);
  Event event("rdma_destroy_qp");
  event.text([&] { return label(id); });
  real(id);
  event.ended();
}

int rdma_create_srq(rdma_cm_id *id, ibv_pd *pd, ibv_srq_init_attr *attr) {
  static const auto real = REAL(rdma_create_srq);
  Event event("rdma_create_srq");
  event.text([&] { return label(id) + ", " + label(pd); });
  const int status = event.minus_one(real(id, pd, attr));
  if (!status)
    event.result([&] { return label(id->srq); });
  return status;
}

int rdma_create_srq_ex(rdma_cm_id *id, ibv_srq_init_attr_ex *attr) {
  static const auto real = REAL(rdma_create_srq_ex);
  Event event("rdma_create_srq_ex");
  event.text([&] { return label(id) + ", " + label(attr->pd); });
  const int status = event.minus_one(real(id, attr));
  if (!status)
    event.result([&] { return label(id->srq); });
  return status;
}

void rdma_destroy_srq(rdma_cm_id *id) {
  static const auto real = REAL(rdma_destroy_srq);
  Event event("rdma_destroy_srq");
  event.text([&] { return label(id); });
  real(id);
  event.ended();
}

int rdma_join_multicast(rdma_cm_id *id, sockaddr *group, void *context) {
  static const auto real = REAL(rdma_join_multicast);
  Event event("rdma_join_multicast");
  event.text([&] { return label(id) + ", " + address(group); });
  return event.minus_one(real(id, group, context));
}

int rdma_join_multicast_ex(rdma_cm_id *id, rdma_cm_join_mc_attr_ex *attr, void *context) {
  static const auto real = REAL(rdma_join_multicast_ex);
  Event event("rdma_join_multicast_ex");
  event.text([&] { return label(id) + ", " + address(attr->addr); });
  return event.minus_one(real(id, attr, context));
}

int rdma_leave_multicast(rdma_cm_id *id, sockaddr *group) {
  static const auto real = REAL(rdma_leave_multicast);
  Event event("rdma_leave_multicast");
  event.text([&] { return label(id) + ", " + address(group); });
  return event.minus_one(real(id, group));
}

int rdma_get_cm_event(rdma_event_channel *channel, rdma_cm_event **what) {
  static const auto real = REAL(rdma_get_cm_event);
  Event event("rdma_get_cm_event");
  event.text([&] { return label(channel); });
  const int status = event.minus_one(real(channel, what));
  if (status)
    return status;
  const rdma_cm_event &got = **what;
  if (got.event == RDMA_CM_EVENT_CONNECT_REQUEST) // it comes with an id of its own
    event.note([&] { new_label("id", got.id); });
  event.result([&] {
    return cm_event(got.event) + " " + label(got.id) +
           (got.status ? print(", status %d", got.status) : "");
  });
  event.json([&](Json &json) {
    json.string("event", cm_event(got.event))
        .raw("status", std::to_string(got.status))
        .string("id", label(got.id));
  });
  return status;
}

int rdma_ack_cm_event(rdma_cm_event *what) {
  static const auto real = REAL(rdma_ack_cm_event);
  Event event("rdma_ack_cm_event");
  event.text([&] { return cm_event(what->event); });
  return event.minus_one(real(what));
}

} // extern "C"

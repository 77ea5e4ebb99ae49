// SPDX-License-Identifier: MIT
// rdma_cm: each call that can fail. All of them return -1 and an error number in errno, or NULL.

#include "channel_events.hpp"
#include "inject.hpp"

#include <rdma/rdma_cma.h>

using namespace inject;

// FUNCTION returns 0, or -1 and an error number in errno: by default, ERROR.
#define CM(function, error, parameters, arguments)                                                 \
  int function parameters {                                                                        \
    static const auto real = REAL(function);                                                       \
    return minus_one(#function, error, [&] { return real arguments; });                            \
  }
// The same, and what it made: OBJECT, an expression.
#define CM_MAKES(function, error, parameters, arguments, object)                                   \
  int function parameters {                                                                        \
    static const auto real = REAL(function);                                                       \
    Call call(#function);                                                                          \
    if (const int failed = failure(call, error)) {                                                 \
      errno = failed;                                                                              \
      return -1;                                                                                   \
    }                                                                                              \
    const int status = real arguments;                                                             \
    if (!status)                                                                                   \
      call.made(object);                                                                           \
    return status;                                                                                 \
  }
// It ends OBJECT, or something without an end of its own.
#define CM_ENDS(function, error, object, parameters, arguments)                                    \
  int function parameters {                                                                        \
    static const auto real = REAL(function);                                                       \
    return ends(#function, error, object, true, [&] { return real arguments; });                   \
  }

extern "C" {

// clang-format off
CM_MAKES(rdma_create_id, ENODEV,
         (rdma_event_channel *channel, rdma_cm_id **id, void *context, rdma_port_space space),
         (channel, id, context, space), *id)
CM_ENDS(rdma_destroy_id, EINVAL, id, (rdma_cm_id *id), (id))
CM(rdma_migrate_id, ENOMEM, (rdma_cm_id *id, rdma_event_channel *channel), (id, channel))
CM_MAKES(rdma_create_ep, ENOMEM,
         (rdma_cm_id **id, rdma_addrinfo *res, ibv_pd *pd, ibv_qp_init_attr *attr),
         (id, res, pd, attr), *id)
CM(rdma_bind_addr, EADDRNOTAVAIL, (rdma_cm_id *id, sockaddr *where), (id, where))
CM(rdma_resolve_addr, ENODEV, (rdma_cm_id *id, sockaddr *source, sockaddr *target, int timeout),
   (id, source, target, timeout))
CM(rdma_resolve_route, ENODEV, (rdma_cm_id *id, int timeout), (id, timeout))
CM(rdma_listen, EADDRINUSE, (rdma_cm_id *id, int backlog), (id, backlog))
CM_MAKES(rdma_get_request, ENOMEM, (rdma_cm_id *listener, rdma_cm_id **id), (listener, id), *id)
CM(rdma_connect, ENOMEM, (rdma_cm_id *id, rdma_conn_param *param), (id, param))
CM(rdma_accept, ENOMEM, (rdma_cm_id *id, rdma_conn_param *param), (id, param))
CM_ENDS(rdma_reject, ENOMEM, nullptr, (rdma_cm_id *id, const void *data, std::uint8_t length),
        (id, data, length))
CM(rdma_establish, EINVAL, (rdma_cm_id *id), (id))
CM(rdma_notify, EINVAL, (rdma_cm_id *id, ibv_event_type what), (id, what))
CM_ENDS(rdma_disconnect, EIO, nullptr, (rdma_cm_id *id), (id))
CM_MAKES(rdma_create_qp, ENOMEM, (rdma_cm_id *id, ibv_pd *pd, ibv_qp_init_attr *attr),
         (id, pd, attr), &id->qp)
CM_MAKES(rdma_create_qp_ex, ENOMEM, (rdma_cm_id *id, ibv_qp_init_attr_ex *attr), (id, attr),
         &id->qp)
CM_MAKES(rdma_create_srq, ENOMEM, (rdma_cm_id *id, ibv_pd *pd, ibv_srq_init_attr *attr),
         (id, pd, attr), &id->srq)
CM_MAKES(rdma_create_srq_ex, ENOMEM, (rdma_cm_id *id, ibv_srq_init_attr_ex *attr), (id, attr),
         &id->srq)
CM(rdma_join_multicast, ENOMEM, (rdma_cm_id *id, sockaddr *group, void *context),
   (id, group, context))
CM(rdma_join_multicast_ex, ENOMEM,
   (rdma_cm_id *id, rdma_cm_join_mc_attr_ex *attr, void *context), (id, attr, context))
CM_ENDS(rdma_leave_multicast, EADDRNOTAVAIL, nullptr, (rdma_cm_id *id, sockaddr *group),
        (id, group))
CM_ENDS(rdma_ack_cm_event, EINVAL, nullptr, (rdma_cm_event *event), (event))
CM(rdma_set_option, EINVAL, (rdma_cm_id *id, int level, int name, void *value, std::size_t length),
   (id, level, name, value, length))
CM(rdma_getaddrinfo, ENODEV,
   (const char *node, const char *service, const rdma_addrinfo *hints, rdma_addrinfo **found),
   (node, service, hints, found))
// clang-format on

rdma_event_channel *rdma_create_event_channel() {
  static const auto real = REAL(rdma_create_event_channel);
  return null_and_errno("rdma_create_event_channel", ENODEV, [&] { return real(); });
}

void rdma_destroy_event_channel(rdma_event_channel *channel) {
  static const auto real = REAL(rdma_destroy_event_channel);
  Call call("rdma_destroy_event_channel");
  call.ended(channel);
  real(channel);
}

void rdma_destroy_ep(rdma_cm_id *id) {
  static const auto real = REAL(rdma_destroy_ep);
  Call call("rdma_destroy_ep");
  call.ended(id);
  call.ended(&id->qp);
  call.ended(&id->srq);
  real(id);
}

void rdma_destroy_qp(rdma_cm_id *id) {
  static const auto real = REAL(rdma_destroy_qp);
  Call call("rdma_destroy_qp");
  call.ended(&id->qp);
  real(id);
}

void rdma_destroy_srq(rdma_cm_id *id) {
  static const auto real = REAL(rdma_destroy_srq);
  Call call("rdma_destroy_srq");
  call.ended(&id->srq);
  real(id);
}

int rdma_get_cm_event(rdma_event_channel *channel, rdma_cm_event **what) {
  static const auto real = REAL(rdma_get_cm_event);
  static const auto acknowledge = REAL(rdma_ack_cm_event);
  static const auto destroy = REAL(rdma_destroy_id);
  const int status = event(
      "rdma_get_cm_event", channel->fd, [&] { return real(channel, what); },
      [&] { // a request comes with an id of its own
        rdma_cm_id *id = (*what)->event == RDMA_CM_EVENT_CONNECT_REQUEST ? (*what)->id : nullptr;
        acknowledge(*what);
        if (id)
          destroy(id);
      });
  if (!status && (*what)->event == RDMA_CM_EVENT_CONNECT_REQUEST)
    Call("rdma_get_cm_event").made((*what)->id);
  return status;
}

} // extern "C"

// SPDX-License-Identifier: MIT
// Preloaded, it makes another kind of device of the one that is there. OTHER_NIC lists how it
// differs:
//   large_cq       a CQ has room for 100 completions more than its `cqe` says
//   early_event    an asynchronous event of the port comes before the first real one
//   lid_1          an Ethernet port has the LID 1
//   iwarp          the transport is iWARP, and the GIDs have the type that such a port reports
//   no_atomics     the device has no atomics, and refuses memory for them
//   no_link_layer  the port's link layer and the transport are unspecified, as with EFA
//   late           a CQ that is polled in place has nothing at every other look
//   no_device      the list of devices is empty
//   port_down      the port is not active
//   no_gid         the port's GID table is empty

#include "next.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

bool is(const char *difference) {
  const char *all = std::getenv("OTHER_NIC");
  return all && std::strstr(all, difference);
}

decltype(verbs_context::query_port) real_query = nullptr;

int query_port(ibv_context *context, uint8_t port, ibv_port_attr *attr, size_t size) {
  const int rc = real_query(context, port, attr, size);
  if (rc == 0 && is("lid_1"))
    attr->lid = 1;
  if (rc == 0 && is("no_link_layer"))
    attr->link_layer = IBV_LINK_LAYER_UNSPECIFIED;
  if (rc == 0 && is("port_down"))
    attr->state = IBV_PORT_DOWN;
  return rc;
}

decltype(verbs_context::create_cq_ex) real_create_cq_ex = nullptr;
decltype(ibv_cq_ex::start_poll) real_start_poll = nullptr;

int start_poll(ibv_cq_ex *cq, ibv_poll_cq_attr *attr) {
  static bool is_empty = false;
  is_empty = !is_empty;
  return is_empty ? ENOENT : real_start_poll(cq, attr);
}

ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr) {
  ibv_cq_ex *cq = real_create_cq_ex(context, attr);
  if (cq) {
    real_start_poll = cq->start_poll;
    cq->start_poll = start_poll;
  }
  return cq;
}

bool refuses(int access) {
  if (!is("no_atomics") || (access & IBV_ACCESS_REMOTE_ATOMIC) == 0)
    return false;
  errno = EINVAL;
  return true;
}

} // namespace

extern "C" {

ibv_device **ibv_get_device_list(int *count) {
  static const auto real = REAL(ibv_get_device_list);
  ibv_device **list = real(count);
  if (list && is("no_device")) {
    list[0] = nullptr;
    if (count)
      *count = 0;
  }
  for (ibv_device **each = list; each && *each; ++each) {
    if (is("iwarp")) {
      (*each)->node_type = IBV_NODE_RNIC;
      (*each)->transport_type = IBV_TRANSPORT_IWARP;
    } else if (is("no_link_layer")) {
      (*each)->node_type = IBV_NODE_UNSPECIFIED;
      (*each)->transport_type = IBV_TRANSPORT_UNSPECIFIED;
    }
  }
  return list;
}

ibv_context *ibv_open_device(ibv_device *device) {
  static const auto real = REAL(ibv_open_device);
  ibv_context *context = real(device);
  if (!context)
    return nullptr;
  verbs_context *verbs = verbs_get_ctx(context);
  if (verbs->query_port != query_port)
    real_query = verbs->query_port;
  verbs->query_port = query_port;
  if (is("late")) {
    real_create_cq_ex = verbs->create_cq_ex;
    verbs->create_cq_ex = create_cq_ex;
  }
  return context;
}

int ibv_query_device(ibv_context *context, ibv_device_attr *attr) {
  static const auto real = REAL(ibv_query_device);
  const int rc = real(context, attr);
  if (rc == 0 && is("no_atomics"))
    attr->atomic_cap = IBV_ATOMIC_NONE;
  return rc;
}

int _ibv_query_gid_ex(ibv_context *context, uint32_t port, uint32_t index, ibv_gid_entry *entry,
                      uint32_t flags, size_t size) {
  static const auto real = REAL(_ibv_query_gid_ex);
  const int rc = real(context, port, index, entry, flags, size);
  if (rc == 0 && (is("iwarp") || is("no_link_layer")))
    entry->gid_type = IBV_GID_TYPE_IB;
  return rc;
}

ssize_t _ibv_query_gid_table(ibv_context *context, ibv_gid_entry *entries, size_t max,
                             uint32_t flags, size_t size) {
  static const auto real = REAL(_ibv_query_gid_table);
  return is("no_gid") ? 0 : real(context, entries, max, flags, size);
}

#undef ibv_reg_mr
ibv_mr *ibv_reg_mr(ibv_pd *pd, void *address, size_t length, int access) {
  static const auto real = REAL(ibv_reg_mr);
  return refuses(access) ? nullptr : real(pd, address, length, access);
}

#undef ibv_reg_mr_iova
ibv_mr *ibv_reg_mr_iova(ibv_pd *pd, void *address, size_t length, uint64_t iova, int access) {
  static const auto real = REAL(ibv_reg_mr_iova);
  return refuses(access) ? nullptr : real(pd, address, length, iova, access);
}

ibv_cq *ibv_create_cq(ibv_context *context, int cqe, void *user, ibv_comp_channel *channel,
                      int vector) {
  static const auto real = REAL(ibv_create_cq);
  if (!is("large_cq"))
    return real(context, cqe, user, channel, vector);
  ibv_cq *cq = real(context, cqe + 100, user, channel, vector);
  if (cq)
    cq->cqe = cqe;
  return cq;
}

int ibv_get_async_event(ibv_context *context, ibv_async_event *event) {
  static const auto real = REAL(ibv_get_async_event);
  static bool first = true;
  if (is("early_event") && first) {
    first = false;
    *event = {};
    event->element.port_num = 1;
    event->event_type = IBV_EVENT_GID_CHANGE;
    return 0;
  }
  return real(context, event);
}

} // extern "C"

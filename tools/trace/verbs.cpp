// SPDX-License-Identifier: MIT
// The verbs that are ordinary functions of libibverbs: this library defines them too, and comes
// first.
//
// To add one: its line in calls.def, and what its arguments and its result say.

#include "event.hpp"
#include "fast_path.hpp"
#include "interpose.hpp"
#include "names.hpp"

#include <cstring>

namespace trace {
namespace {

namespace call = preload::call;

std::string hex(std::uint64_t number) {
  return print("0x%llx", static_cast<unsigned long long>(number));
}

unsigned mtu_bytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0; // IBV_MTU_256 is 1
}

// Returns true if the path ends at the port where it begins. The numbers of queue pairs do not
// tell: a peer on another host may have the same.
bool leads_back(ibv_context *context, const ibv_qp_attr &attr, int mask) {
  using QueryGid = int(ibv_context *, std::uint8_t, int, ibv_gid *);
  static const auto query_gid = preload::next<QueryGid>("ibv_query_gid");
  const ibv_ah_attr &path = attr.ah_attr;
  ibv_gid own{};
  return mask & IBV_QP_AV && path.is_global && query_gid &&
         !query_gid(context, path.port_num, path.grh.sgid_index, &own) &&
         std::memcmp(own.raw, path.grh.dgid.raw, sizeof own.raw) == 0;
}

// ---- what the arguments say

std::string words(call::ibv_open_device, ibv_device *device) {
  return device ? device->name : "NULL";
}
std::string words(call::ibv_import_device, int fd) {
  return print("fd %d", fd);
}
std::string words(call::ibv_close_device, ibv_context *context) {
  return context->device->name;
}
std::string words(call::ibv_reg_mr, ibv_pd *pd, void *, std::size_t length, int access) {
  return print("%s, %zu B, ", label(pd).c_str(), length) +
         access_flags(static_cast<unsigned>(access));
}
std::string words(call::ibv_reg_mr_iova, ibv_pd *pd, void *, std::size_t length, std::uint64_t iova,
                  int access) {
  return print("%s, %zu B, iova %s, ", label(pd).c_str(), length, hex(iova).c_str()) +
         access_flags(static_cast<unsigned>(access));
}
// verbs.h calls this for ibv_reg_mr where the access flags are no constant, so the call depends on
// how the program was optimised. The trace has the name that stands in the program.
std::string words(call::ibv_reg_mr_iova2, ibv_pd *pd, void *address, std::size_t length,
                  std::uint64_t iova, unsigned access) {
  return iova == reinterpret_cast<std::uintptr_t>(address)
             ? words(call::ibv_reg_mr(), pd, address, length, static_cast<int>(access))
             : words(call::ibv_reg_mr_iova(), pd, address, length, iova, static_cast<int>(access));
}
std::string words(call::ibv_create_cq, ibv_context *, int cqe, void *, ibv_comp_channel *channel,
                  int) {
  return print("%d entries", cqe) + (channel ? ", " + label(channel) : "");
}
std::string words(call::ibv_resize_cq, ibv_cq *cq, int cqe) {
  return print("%s, %d entries", label(cq).c_str(), cqe);
}
std::string words(call::ibv_ack_cq_events, ibv_cq *cq, unsigned count) {
  return print("%s, %u", label(cq).c_str(), count);
}
std::string words(call::ibv_get_async_event, ibv_context *, ibv_async_event *) {
  return "";
}
std::string words(call::ibv_ack_async_event, ibv_async_event *event) {
  return async_event(*event);
}
std::string words(call::ibv_create_qp, ibv_pd *pd, ibv_qp_init_attr *attr) {
  return label(pd) + ", " + describe(*attr);
}
std::string words(call::ibv_create_srq, ibv_pd *pd, ibv_srq_init_attr *attr) {
  return print("%s, %u receives", label(pd).c_str(), attr->attr.max_wr);
}
std::string words(call::ibv_modify_srq, ibv_srq *srq, ibv_srq_attr *attr, int mask) {
  return label(srq) + (mask & IBV_SRQ_LIMIT ? print(", limit %u", attr->srq_limit) : "") +
         (mask & IBV_SRQ_MAX_WR ? print(", %u receives", attr->max_wr) : "");
}
std::string words(call::ibv_create_ah, ibv_pd *pd, ibv_ah_attr *attr) {
  return label(pd) +
         (attr->is_global ? ", GID " + gid(attr->grh.dgid) : print(", LID %u", attr->dlid));
}
std::string words(call::ibv_create_ah_from_wc, ibv_pd *pd, ibv_wc *wc, ibv_grh *, std::uint8_t) {
  return print("%s, from QP 0x%x", label(pd).c_str(), wc->src_qp);
}
std::string words(call::ibv_attach_mcast, ibv_qp *qp, const ibv_gid *group, std::uint16_t) {
  return label(qp) + ", " + gid(*group);
}
std::string words(call::ibv_detach_mcast, ibv_qp *qp, const ibv_gid *group, std::uint16_t) {
  return label(qp) + ", " + gid(*group);
}

// ---- what came of the call

template <typename Kind, typename... Args>
std::string made(Event &, Kind, ibv_context *context, Args...) {
  watch_context(context);
  return "";
}
template <typename Kind, typename... Args> std::string made(Event &, Kind, ibv_pd *pd, Args...) {
  return new_label("pd", pd);
}
template <typename Kind, typename... Args>
std::string made(Event &event, Kind, ibv_mr *mr, Args...) {
  event.json([&](Json &json) {
    json.number("addr", reinterpret_cast<std::uintptr_t>(mr->addr))
        .number("length", mr->length)
        .number("lkey", mr->lkey)
        .number("rkey", mr->rkey);
  });
  return print("%s lkey 0x%x", new_label("mr", mr).c_str(), mr->lkey) +
         (mr->rkey ? print(" rkey 0x%x", mr->rkey) : "");
}
template <typename Kind, typename... Args>
std::string made(Event &, Kind, ibv_comp_channel *channel, Args...) {
  return new_label("channel", channel);
}
template <typename Kind, typename... Args> std::string made(Event &, Kind, ibv_cq *cq, Args...) {
  return print("%s with %d", new_label("cq", cq).c_str(), cq->cqe);
}
template <typename Kind, typename... Args> std::string made(Event &, Kind, ibv_ah *ah, Args...) {
  return new_label("ah", ah);
}
std::string made(Event &, call::ibv_get_cq_event, int, ibv_comp_channel *, ibv_cq **cq, void **) {
  return label(*cq);
}
std::string made(Event &, call::ibv_get_async_event, int, ibv_context *, ibv_async_event *event) {
  return async_event(*event);
}
std::string made(Event &event, call::ibv_create_qp, ibv_qp *qp, ibv_pd *, ibv_qp_init_attr *attr) {
  return made_qp(event, qp, attr->sq_sig_all, attr->cap);
}
std::string made(Event &, call::ibv_create_srq, ibv_srq *srq, ibv_pd *, ibv_srq_init_attr *attr) {
  return made_srq(srq, attr->attr.max_sge);
}

} // namespace
} // namespace trace

#include "recorded.hpp"

namespace trace {

// The list is neither made nor kept by a device.
template <typename Real> ibv_device **around(call::ibv_get_device_list, Real real, int *) {
  return real();
}
template <typename Real> void around(call::ibv_free_device_list, Real real, ibv_device **) {
  real();
}

template <typename Real>
ibv_mr *around(call::ibv_reg_mr_iova2 kind, Real real, ibv_pd *pd, void *address,
               std::size_t length, std::uint64_t iova, unsigned access) {
  Event event(name_of(kind, address, iova));
  return recorded(event, kind, real, pd, address, length, iova, access);
}

template <typename Real>
int around(call::ibv_modify_qp kind, Real real, ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  Event event(kind.name);
  event.json([&](Json &json) {
    std::string text = label(qp);
    json.number("qp", qp->qp_num);
    if (mask & IBV_QP_STATE) {
      text += ", to " + qp_state(attr->qp_state);
      json.string("state", qp_state(attr->qp_state));
    }
    if (mask & IBV_QP_PORT)
      text += print(", port %u", attr->port_num);
    if (mask & IBV_QP_ACCESS_FLAGS)
      text += ", access " + access_flags(attr->qp_access_flags);
    if (mask & IBV_QP_QKEY)
      text += print(", Q_Key 0x%x", attr->qkey);
    if (mask & IBV_QP_DEST_QPN) {
      const bool is_itself =
          attr->dest_qp_num == qp->qp_num && leads_back(qp->context, *attr, mask);
      text += print(", dest QP 0x%x%s", attr->dest_qp_num, is_itself ? " (itself)" : "");
      json.number("dest_qp", attr->dest_qp_num);
      json.number("is_itself", is_itself);
    }
    if (mask & IBV_QP_PATH_MTU) {
      text += print(", MTU %u", mtu_bytes(attr->path_mtu));
      json.number("path_mtu", mtu_bytes(attr->path_mtu));
    }
    if (mask & IBV_QP_RQ_PSN) {
      text += print(", receive PSN 0x%x", attr->rq_psn);
      json.number("rq_psn", attr->rq_psn);
    }
    if (mask & IBV_QP_SQ_PSN) {
      text += print(", send PSN 0x%x", attr->sq_psn);
      json.number("sq_psn", attr->sq_psn);
    }
    if (mask & IBV_QP_MIN_RNR_TIMER)
      text += print(", min_rnr_timer %u", attr->min_rnr_timer);
    if (mask & IBV_QP_TIMEOUT)
      text += print(", timeout %u", attr->timeout);
    if (mask & IBV_QP_RETRY_CNT)
      text += print(", retry_cnt %u", attr->retry_cnt);
    if (mask & IBV_QP_RNR_RETRY)
      text += print(", rnr_retry %u", attr->rnr_retry);
    event.text([&] { return text; });
  });
  return event.errno_returned(real());
}

template <typename Real> int around(call::ibv_destroy_qp kind, Real real, ibv_qp *qp) {
  Event event(kind.name);
  event.json([&](Json &json) { json.number("qp", qp->qp_num); });
  event.note([&] { qp_uses_cqs(qp, false); });
  const int error = recorded(event, kind, real, qp);
  if (error)
    event.note([&] { qp_uses_cqs(qp, true); });
  return error;
}

} // namespace trace

using namespace trace;

extern "C" {
#define CALL INTERPOSE
#include "calls.def"
}

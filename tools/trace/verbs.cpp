// SPDX-License-Identifier: MIT
// The verbs that are ordinary functions of libibverbs: this library defines them too, and comes
// first.
//
// To add one: its prototype from verbs.h, an Event, REAL(), and what its arguments and its result
// say.

#include "event.hpp"
#include "fast_path.hpp"
#include "names.hpp"
#include "next.hpp"

#include <infiniband/verbs.h>

// verbs.h wraps these in macros for its users.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace trace;

namespace {

ibv_mr *registered(Event &event, ibv_mr *mr) {
  if (event.null(mr)) {
    event.result([&] {
      return print("%s lkey 0x%x", new_label("mr", mr).c_str(), mr->lkey) +
             (mr->rkey ? print(" rkey 0x%x", mr->rkey) : "");
    });
    event.json([&](Json &json) {
      json.number("addr", reinterpret_cast<std::uintptr_t>(mr->addr))
          .number("length", mr->length)
          .number("lkey", mr->lkey)
          .number("rkey", mr->rkey);
    });
  }
  return mr;
}

std::string hex(std::uint64_t number) {
  return print("0x%llx", static_cast<unsigned long long>(number));
}

unsigned mtu_bytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0; // IBV_MTU_256 is 1
}

} // namespace

extern "C" {

ibv_context *ibv_open_device(ibv_device *device) {
  static const auto real = REAL(ibv_open_device);
  Event event("ibv_open_device");
  event.text([&] { return device ? device->name : "NULL"; });
  ibv_context *context = event.null(real(device));
  if (context)
    event.note([&] { watch_context(context); });
  return context;
}

ibv_context *ibv_import_device(int fd) {
  static const auto real = REAL(ibv_import_device);
  Event event("ibv_import_device");
  event.text([&] { return print("fd %d", fd); });
  ibv_context *context = event.null(real(fd));
  if (context)
    event.note([&] { watch_context(context); });
  return context;
}

int ibv_close_device(ibv_context *context) {
  static const auto real = REAL(ibv_close_device);
  Event event("ibv_close_device");
  event.text([&] { return context->device->name; });
  return event.minus_one(real(context));
}

ibv_pd *ibv_alloc_pd(ibv_context *context) {
  static const auto real = REAL(ibv_alloc_pd);
  Event event("ibv_alloc_pd");
  ibv_pd *pd = event.null(real(context));
  if (pd)
    event.result([&] { return new_label("pd", pd); });
  return pd;
}

int ibv_dealloc_pd(ibv_pd *pd) {
  static const auto real = REAL(ibv_dealloc_pd);
  Event event("ibv_dealloc_pd");
  event.text([&] { return label(pd); });
  return event.errno_returned(real(pd));
}

ibv_mr *ibv_reg_mr(ibv_pd *pd, void *address, std::size_t length, int access) {
  static const auto real = REAL(ibv_reg_mr);
  Event event("ibv_reg_mr");
  event.text([&] {
    return print("%s, %zu B, %s", label(pd).c_str(), length,
                 access_flags(static_cast<unsigned>(access)).c_str());
  });
  return registered(event, real(pd, address, length, access));
}

ibv_mr *ibv_reg_mr_iova(ibv_pd *pd, void *address, std::size_t length, std::uint64_t iova,
                        int access) {
  static const auto real = REAL(ibv_reg_mr_iova);
  Event event("ibv_reg_mr_iova");
  event.text([&] {
    return print("%s, %zu B, iova %s, %s", label(pd).c_str(), length, hex(iova).c_str(),
                 access_flags(static_cast<unsigned>(access)).c_str());
  });
  return registered(event, real(pd, address, length, iova, access));
}

// What verbs.h makes of ibv_reg_mr where the access flags are no constant, or hold optional ones.
// So its name depends on how the program was optimised; the trace has the one that stands in the
// program.
ibv_mr *ibv_reg_mr_iova2(ibv_pd *pd, void *address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
  static const auto real = REAL(ibv_reg_mr_iova2);
  const bool plain = iova == reinterpret_cast<std::uintptr_t>(address);
  Event event(plain ? "ibv_reg_mr" : "ibv_reg_mr_iova");
  event.text([&] {
    return print("%s, %zu B, %s%s", label(pd).c_str(), length,
                 plain ? "" : ("iova " + hex(iova) + ", ").c_str(), access_flags(access).c_str());
  });
  return registered(event, real(pd, address, length, iova, access));
}

int ibv_dereg_mr(ibv_mr *mr) {
  static const auto real = REAL(ibv_dereg_mr);
  Event event("ibv_dereg_mr");
  event.text([&] { return label(mr); });
  return event.errno_returned(real(mr));
}

ibv_comp_channel *ibv_create_comp_channel(ibv_context *context) {
  static const auto real = REAL(ibv_create_comp_channel);
  Event event("ibv_create_comp_channel");
  ibv_comp_channel *channel = event.null(real(context));
  if (channel)
    event.result([&] { return new_label("channel", channel); });
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel *channel) {
  static const auto real = REAL(ibv_destroy_comp_channel);
  Event event("ibv_destroy_comp_channel");
  event.text([&] { return label(channel); });
  return event.errno_returned(real(channel));
}

ibv_cq *ibv_create_cq(ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel,
                      int comp_vector) {
  static const auto real = REAL(ibv_create_cq);
  Event event("ibv_create_cq");
  event.text([&] { return print("%d entries", cqe) + (channel ? ", " + label(channel) : ""); });
  ibv_cq *cq = event.null(real(context, cqe, cq_context, channel, comp_vector));
  if (cq)
    event.result([&] { return print("%s with %d", new_label("cq", cq).c_str(), cq->cqe); });
  return cq;
}

int ibv_resize_cq(ibv_cq *cq, int cqe) {
  static const auto real = REAL(ibv_resize_cq);
  Event event("ibv_resize_cq");
  event.text([&] { return print("%s, %d entries", label(cq).c_str(), cqe); });
  return event.errno_returned(real(cq, cqe));
}

int ibv_destroy_cq(ibv_cq *cq) {
  static const auto real = REAL(ibv_destroy_cq);
  Event event("ibv_destroy_cq");
  event.text([&] { return label(cq); });
  return event.errno_returned(real(cq));
}

int ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context) {
  static const auto real = REAL(ibv_get_cq_event);
  Event event("ibv_get_cq_event");
  event.text([&] { return label(channel); });
  const int status = event.minus_one(real(channel, cq, cq_context));
  if (!status)
    event.result([&] { return label(*cq); });
  return status;
}

void ibv_ack_cq_events(ibv_cq *cq, unsigned count) {
  static const auto real = REAL(ibv_ack_cq_events);
  Event event("ibv_ack_cq_events");
  event.text([&] { return print("%s, %u", label(cq).c_str(), count); });
  real(cq, count);
  event.ended();
}

int ibv_get_async_event(ibv_context *context, ibv_async_event *what) {
  static const auto real = REAL(ibv_get_async_event);
  Event event("ibv_get_async_event");
  const int status = event.minus_one(real(context, what));
  if (!status)
    event.result([&] { return async_event(*what); });
  return status;
}

void ibv_ack_async_event(ibv_async_event *what) {
  static const auto real = REAL(ibv_ack_async_event);
  Event event("ibv_ack_async_event");
  event.text([&] { return async_event(*what); });
  real(what);
  event.ended();
}

ibv_qp *ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *attr) {
  static const auto real = REAL(ibv_create_qp);
  Event event("ibv_create_qp");
  event.text([&] { return print("%s, %s", label(pd).c_str(), describe(*attr).c_str()); });
  ibv_qp *qp = event.null(real(pd, attr));
  if (qp)
    made_qp(event, qp, attr->sq_sig_all, attr->cap);
  return qp;
}

int ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  static const auto real = REAL(ibv_modify_qp);
  Event event("ibv_modify_qp");
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
      text += print(", dest QP 0x%x", attr->dest_qp_num);
      json.number("dest_qp", attr->dest_qp_num);
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
  return event.errno_returned(real(qp, attr, mask));
}

int ibv_destroy_qp(ibv_qp *qp) {
  static const auto real = REAL(ibv_destroy_qp);
  Event event("ibv_destroy_qp");
  event.text([&] { return label(qp); });
  event.json([&](Json &json) { json.number("qp", qp->qp_num); });
  event.note([&] { qp_uses_cqs(qp, false); });
  const int error = event.errno_returned(real(qp));
  if (error)
    event.note([&] { qp_uses_cqs(qp, true); });
  return error;
}

ibv_srq *ibv_create_srq(ibv_pd *pd, ibv_srq_init_attr *attr) {
  static const auto real = REAL(ibv_create_srq);
  Event event("ibv_create_srq");
  event.text([&] { return print("%s, %u receives", label(pd).c_str(), attr->attr.max_wr); });
  ibv_srq *srq = event.null(real(pd, attr));
  if (srq)
    made_srq(event, srq, attr->attr.max_sge);
  return srq;
}

int ibv_modify_srq(ibv_srq *srq, ibv_srq_attr *attr, int mask) {
  static const auto real = REAL(ibv_modify_srq);
  Event event("ibv_modify_srq");
  event.text([&] {
    return label(srq) + (mask & IBV_SRQ_LIMIT ? print(", limit %u", attr->srq_limit) : "") +
           (mask & IBV_SRQ_MAX_WR ? print(", %u receives", attr->max_wr) : "");
  });
  return event.errno_returned(real(srq, attr, mask));
}

int ibv_destroy_srq(ibv_srq *srq) {
  static const auto real = REAL(ibv_destroy_srq);
  Event event("ibv_destroy_srq");
  event.text([&] { return label(srq); });
  return event.errno_returned(real(srq));
}

ibv_ah *ibv_create_ah(ibv_pd *pd, ibv_ah_attr *attr) {
  static const auto real = REAL(ibv_create_ah);
  Event event("ibv_create_ah");
  event.text([&] {
    return label(pd) +
           (attr->is_global ? ", GID " + gid(attr->grh.dgid) : print(", LID %u", attr->dlid));
  });
  ibv_ah *ah = event.null(real(pd, attr));
  if (ah)
    event.result([&] { return new_label("ah", ah); });
  return ah;
}

ibv_ah *ibv_create_ah_from_wc(ibv_pd *pd, ibv_wc *wc, ibv_grh *grh, std::uint8_t port) {
  static const auto real = REAL(ibv_create_ah_from_wc);
  Event event("ibv_create_ah_from_wc");
  event.text([&] { return print("%s, from QP 0x%x", label(pd).c_str(), wc->src_qp); });
  ibv_ah *ah = event.null(real(pd, wc, grh, port));
  if (ah)
    event.result([&] { return new_label("ah", ah); });
  return ah;
}

int ibv_destroy_ah(ibv_ah *ah) {
  static const auto real = REAL(ibv_destroy_ah);
  Event event("ibv_destroy_ah");
  event.text([&] { return label(ah); });
  return event.errno_returned(real(ah));
}

int ibv_attach_mcast(ibv_qp *qp, const ibv_gid *group, std::uint16_t lid) {
  static const auto real = REAL(ibv_attach_mcast);
  Event event("ibv_attach_mcast");
  event.text([&] { return label(qp) + ", " + gid(*group); });
  return event.errno_returned(real(qp, group, lid));
}

int ibv_detach_mcast(ibv_qp *qp, const ibv_gid *group, std::uint16_t lid) {
  static const auto real = REAL(ibv_detach_mcast);
  Event event("ibv_detach_mcast");
  event.text([&] { return label(qp) + ", " + gid(*group); });
  return event.errno_returned(real(qp, group, lid));
}

int ibv_fork_init() {
  static const auto real = REAL(ibv_fork_init);
  Event event("ibv_fork_init");
  return event.errno_returned(real());
}

} // extern "C"

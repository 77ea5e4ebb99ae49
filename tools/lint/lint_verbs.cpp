// SPDX-License-Identifier: MIT
// The verbs that are ordinary functions of libibverbs: this library defines them too, and comes
// first. Each calls the real one, and tells the rules what has happened.

#include "failed_calls.hpp"
#include "interpose.hpp"
#include "tracked.hpp"

namespace lint {
namespace {

namespace call = preload::call;

std::string why_failed(call::ibv_reg_mr, int error, ibv_pd *, void *address, std::size_t length,
                       int access) {
  return why_not_registered(address, length, static_cast<unsigned>(access), error);
}
std::string why_failed(call::ibv_reg_mr_iova, int error, ibv_pd *, void *address,
                       std::size_t length, std::uint64_t, int access) {
  return why_not_registered(address, length, static_cast<unsigned>(access), error);
}
std::string why_failed(call::ibv_reg_mr_iova2, int error, ibv_pd *, void *address,
                       std::size_t length, std::uint64_t, unsigned access) {
  return why_not_registered(address, length, access, error);
}
std::string why_failed(call::ibv_create_cq, int error, ibv_context *context, int cqe, void *,
                       ibv_comp_channel *, int vector) {
  return error == EINVAL ? why_no_cq(context, cqe, vector) : "";
}
std::string why_failed(call::ibv_create_qp, int error, ibv_pd *pd, ibv_qp_init_attr *attr) {
  return error == EINVAL ? why_no_qp(pd->context, *attr) : "";
}

void made(call::ibv_open_device, ibv_context *context, ibv_device *) {
  watch_context(context);
}
void made(call::ibv_import_device, ibv_context *context, int) {
  watch_context(context);
}
void made(call::ibv_alloc_pd, ibv_pd *pd, ibv_context *context) {
  const Locked lock;
  add<Pd>(pd, "pd", context);
}
void made(call::ibv_reg_mr_iova2, ibv_mr *mr, ibv_pd *pd, void *address, std::size_t,
          std::uint64_t iova, unsigned access) {
  made_mr(pd, mr, access & IBV_ACCESS_ZERO_BASED ? 0 : iova, address, access);
}
void made(call::ibv_reg_mr_iova, ibv_mr *mr, ibv_pd *pd, void *address, std::size_t length,
          std::uint64_t iova, int access) {
  made(call::ibv_reg_mr_iova2(), mr, pd, address, length, iova, static_cast<unsigned>(access));
}
void made(call::ibv_reg_mr, ibv_mr *mr, ibv_pd *pd, void *address, std::size_t length, int access) {
  made(call::ibv_reg_mr_iova(), mr, pd, address, length, reinterpret_cast<std::uintptr_t>(address),
       access);
}
void made(call::ibv_create_comp_channel, ibv_comp_channel *channel, ibv_context *context) {
  const Locked lock;
  add<Channel>(channel, "channel", context);
  will_not_wait_for(channel->fd);
}
void made(call::ibv_create_cq, ibv_cq *cq, ibv_context *, int, void *, ibv_comp_channel *channel,
          int) {
  made_cq(cq, channel);
}
void made(call::ibv_resize_cq, int, ibv_cq *cq, int) {
  const Locked lock;
  if (const auto its = find<Cq>(cq))
    its->room = cq->cqe;
}
void made(call::ibv_get_cq_event, int, ibv_comp_channel *, ibv_cq **cq, void **) {
  got_event(*cq);
}
void made(call::ibv_create_qp, ibv_qp *qp, ibv_pd *, ibv_qp_init_attr *attr) {
  made_qp(qp, attr->cap, attr->sq_sig_all);
}
void made(call::ibv_create_srq, ibv_srq *srq, ibv_pd *pd, ibv_srq_init_attr *attr) {
  made_srq(srq, pd, attr->attr.max_sge);
}
void made(call::ibv_create_ah, ibv_ah *ah, ibv_pd *pd, ibv_ah_attr *) {
  const Locked lock;
  add<Ah>(ah, "ah", pd->context).pd = pd;
}
void made(call::ibv_create_ah_from_wc, ibv_ah *ah, ibv_pd *pd, ibv_wc *, ibv_grh *, std::uint8_t) {
  const Locked lock;
  if (!find<Ah>(ah) || !find<Ah>(ah)->live) // libibverbs may have called ibv_create_ah for it
    add<Ah>(ah, "ah", pd->context).pd = pd;
}
void made(call::ibv_attach_mcast, int, ibv_qp *qp, const ibv_gid *group, std::uint16_t) {
  attached(qp, *group);
}

} // namespace
} // namespace lint

#include "checked.hpp"

namespace lint {

// A thread may wait in this call for as long as the context exists, so it is no use of it.
template <typename Real>
int around(call::ibv_get_async_event kind, Real real, ibv_context *, ibv_async_event *) {
  return called(kind, real, [&](int result) {
    if (result)
      note_failure(kind, kind.name, result);
  });
}

template <typename Real>
ibv_mr *around(call::ibv_reg_mr_iova2 kind, Real real, ibv_pd *pd, void *address,
               std::size_t length, std::uint64_t iova, unsigned access) {
  return checked(kind, name_of(kind, address, iova), real, pd, address, length, iova, access);
}

template <typename Real>
ibv_qp *around(call::ibv_create_qp kind, Real real, ibv_pd *pd, ibv_qp_init_attr *attr) {
  if (pd && attr && refuses_qp(kind.name, pd->context, *attr))
    return preload::failed_with<ibv_qp *>(kind, EINVAL);
  return checked(kind, kind.name, real, pd, attr);
}

template <typename Real> int around(call::ibv_destroy_cq kind, Real real, ibv_cq *cq) {
  check_missed(cq);
  return checked(kind, kind.name, real, cq);
}

template <typename Real>
int around(call::ibv_get_cq_event kind, Real real, ibv_comp_channel *channel, ibv_cq **cq,
           void **context) {
  const auto waits = [&] {
    will_wait(channel);
    return real();
  };
  return checked(kind, kind.name, waits, channel, cq, context);
}

template <typename Real>
void around(call::ibv_ack_cq_events kind, Real real, ibv_cq *cq, unsigned count) {
  const auto acknowledges = [&] {
    {
      const Locked lock;
      if (const auto its = find<Cq>(cq))
        its->events.acknowledge(count);
    }
    real();
  };
  checked(kind, kind.name, acknowledges, cq, count);
}

template <typename Real>
int around(call::ibv_modify_qp kind, Real real, ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  const auto modifies = [&] {
    will_modify(qp, *attr, mask);
    return called(kind, real, [&](int error) { did_modify(qp, *attr, mask, error); });
  };
  const bool is_rtr = attr && mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RTR;
  return checked(kind, is_rtr ? "ibv_modify_qp(RTR)" : kind.name, modifies, qp, attr, mask);
}

template <typename Real>
ibv_ah *around(call::ibv_create_ah kind, Real real, ibv_pd *pd, ibv_ah_attr *attr) {
  const auto makes = [&] {
    check_address(pd->context, *attr, "an address handle", {});
    return real();
  };
  return checked(kind, kind.name, makes, pd, attr);
}

} // namespace lint

using namespace lint;

extern "C" {
#define CALL INTERPOSE
#include "calls.def"
}

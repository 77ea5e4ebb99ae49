// SPDX-License-Identifier: MIT
// The operations of each context: post, poll, arm, memory windows; and the objects that are made
// through it.

#include "context.hpp"

#include "counted.hpp"
#include "object_registry.hpp"

#include <cstring>
#include <unordered_map>

namespace inject {
namespace {

using preload::kept;

struct Builder {
  decltype(ibv_qp_ex::wr_complete) wr_complete = nullptr;
};

struct ExtendedCq {
  decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
  decltype(ibv_cq_ex::next_poll) next_poll = nullptr;
};

std::unordered_map<std::uint32_t, ibv_qp *> &qps() { // under lock_of_all()
  static auto &all = *new std::unordered_map<std::uint32_t, ibv_qp *>;
  return all;
}

void to_error_state(std::uint32_t qp_num) {
  static const auto modify = REAL(ibv_modify_qp);
  ibv_qp *qp = nullptr;
  {
    const std::lock_guard lock(preload::lock_of_all());
    const auto found = qps().find(qp_num);
    qp = found == qps().end() ? nullptr : found->second;
  }
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (qp)
    modify(qp, &attr, IBV_QP_STATE);
}

// A receive cannot run out of retries, nor does a send fail as its receive would.
ibv_wc_status status_of(const Verdict &verdict, ibv_wc_opcode opcode) {
  if (verdict.status)
    return verdict.status;
  return opcode & IBV_WC_RECV ? IBV_WC_LOC_PROT_ERR : IBV_WC_RETRY_EXC_ERR;
}

// An error completion has only these members; the rest may be anything, and here it is.
void fail(ibv_wc &wc, ibv_wc_status status) {
  const std::uint64_t wr_id = wc.wr_id;
  const std::uint32_t qp_num = wc.qp_num;
  std::memset(&wc, 0xa5, sizeof wc);
  wc.wr_id = wr_id;
  wc.qp_num = qp_num;
  wc.status = status;
  wc.vendor_err = 0x1249; // some number
  to_error_state(qp_num);
}

// ---- work requests that ibv_wr_*() build, completions that are read in place

int wr_complete(ibv_qp_ex *qp) {
  const auto real = kept<Builder>().find(qp)->wr_complete;
  Call call("ibv_wr_complete");
  const int failed = failure(call, ENOMEM);
  if (!failed)
    return real(qp);
  qp->wr_abort(qp); // gives back what wr_start() has locked
  return failed;
}

int polled(Call &call, ibv_cq_ex *cq, int error) {
  if (error || cq->status != IBV_WC_SUCCESS)
    return error;
  const Verdict verdict = call.count(0);
  if (!verdict.fails)
    return 0;
  if (verdict.how == How::negative) { // an error number, here
    call.report(name_of(EIO));
    return EIO;
  }
  const std::uint32_t qp_num = cq->read_qp_num ? cq->read_qp_num(cq) : 0;
  cq->status = status_of(verdict, cq->read_opcode(cq));
  call.report(name_of(cq->status));
  to_error_state(qp_num);
  return 0;
}

int start_poll(ibv_cq_ex *cq, ibv_poll_cq_attr *attr) {
  Call call("ibv_start_poll");
  const int error = polled(call, cq, kept<ExtendedCq>().find(cq)->start_poll(cq, attr));
  if (error == EIO) // without a completion there is no ibv_end_poll()
    cq->end_poll(cq);
  return error;
}

int next_poll(ibv_cq_ex *cq) {
  Call call("ibv_next_poll");
  return polled(call, cq, kept<ExtendedCq>().find(cq)->next_poll(cq));
}

void wrap_builders(ibv_qp *qp) {
  static const auto extended = REAL(ibv_qp_to_qp_ex);
  ibv_qp_ex *its = extended(qp);
  if (!its || !its->wr_complete)
    return;
  kept<Builder>().renew(its).wr_complete = its->wr_complete;
  its->wr_complete = wr_complete;
}

void wrap_cq(ibv_cq_ex *cq) {
  kept<ExtendedCq>().renew(cq) = {.start_poll = cq->start_poll, .next_poll = cq->next_poll};
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
}

} // namespace

void remember(ibv_qp *qp) {
  const std::lock_guard lock(preload::lock_of_all());
  qps()[qp->qp_num] = qp;
}

void forget(const ibv_qp *qp) {
  const std::lock_guard lock(preload::lock_of_all());
  if (const auto found = qps().find(qp->qp_num); found != qps().end() && found->second == qp)
    qps().erase(found);
}

// ---- around the inline functions of verbs.h

template <typename Kind, typename Real, typename Wr>
int post(Kind kind, Real real, Wr *wr, Wr **bad) {
  Call call(kind.name);
  const int failed = failure(call, kind.error);
  if (failed && bad)
    *bad = wr;
  return failed ? failed : real();
}

template <typename Real>
int around(call::ibv_post_send kind, Real real, ibv_qp *, ibv_send_wr *wr, ibv_send_wr **bad) {
  return post(kind, real, wr, bad);
}
template <typename Real>
int around(call::ibv_post_recv kind, Real real, ibv_qp *, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  return post(kind, real, wr, bad);
}
template <typename Real>
int around(call::ibv_post_srq_recv kind, Real real, ibv_srq *, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  return post(kind, real, wr, bad);
}

template <typename Real> int around(call::ibv_poll_cq kind, Real real, ibv_cq *, int, ibv_wc *wc) {
  Call call(kind.name);
  const int count = real();
  for (int i = 0; i < count; ++i) {
    if (wc[i].status != IBV_WC_SUCCESS)
      continue;
    const Verdict verdict = call.count(0);
    if (!verdict.fails)
      continue;
    if (verdict.how == How::negative) {
      call.report("a negative count");
      return -1;
    }
    const ibv_wc_status status = status_of(verdict, wc[i].opcode);
    call.report(name_of(status));
    fail(wc[i], status);
  }
  return count;
}

template <typename Real>
ibv_qp *around(call::ibv_create_qp_ex kind, Real real, ibv_context *, ibv_qp_init_attr_ex *attr) {
  ibv_qp *qp = counted(kind, kind.name, real);
  if (qp) {
    remember(qp);
    if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
      wrap_builders(qp);
  }
  return qp;
}

template <typename Real>
ibv_cq_ex *around(call::ibv_create_cq_ex kind, Real real, ibv_context *, ibv_cq_init_attr_ex *) {
  ibv_cq_ex *cq = counted(kind, kind.name, real);
  if (cq)
    wrap_cq(cq);
  return cq;
}

} // namespace inject

using namespace inject;
#include "context_operations.hpp"

void inject::wrap_context(ibv_context *context) {
  replace_operations(context);
}

// SPDX-License-Identifier: MIT
// What every context has: post, poll, arm, and memory windows; and what is made through it. The
// originals are kept by context, since each provider brings its own.

#include "context.hpp"

#include "inject.hpp"
#include "object_registry.hpp"

#include <cstring>
#include <unordered_map>

namespace inject {
namespace {

using trace::kept;

// What verbs.h calls through, as the provider made it.
struct Originals {
  ibv_context_ops ops;
  decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;
  decltype(verbs_context::create_cq_ex) create_cq_ex = nullptr;
  decltype(verbs_context::create_srq_ex) create_srq_ex = nullptr;
  decltype(verbs_context::alloc_dm) alloc_dm = nullptr;
  decltype(verbs_context::free_dm) free_dm = nullptr;
  decltype(verbs_context::reg_dm_mr) reg_dm_mr = nullptr;
  decltype(verbs_context::query_device_ex) query_device_ex = nullptr;
  decltype(verbs_context::query_port) query_port = nullptr;
};

struct Builder {
  decltype(ibv_qp_ex::wr_complete) wr_complete = nullptr;
};

struct ExtendedCq {
  decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
  decltype(ibv_cq_ex::next_poll) next_poll = nullptr;
};

// Only a context whose operations were replaced comes here, so there is something kept of it.
const Originals &originals(const ibv_context *context) {
  return *kept<Originals>().find(context);
}

std::unordered_map<std::uint32_t, ibv_qp *> &qps() { // under lock_of_all()
  static auto &all = *new std::unordered_map<std::uint32_t, ibv_qp *>;
  return all;
}

void to_error_state(std::uint32_t qp_num) {
  static const auto modify = REAL(ibv_modify_qp);
  ibv_qp *qp = nullptr;
  {
    const std::lock_guard lock(trace::lock_of_all());
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

// ---- through ibv_context::ops

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) {
  const auto real = originals(qp->context).ops.post_send;
  Call call("ibv_post_send");
  const int failed = failure(call, ENOMEM);
  if (failed && bad)
    *bad = wr;
  return failed ? failed : real(qp, wr, bad);
}

int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  const auto real = originals(qp->context).ops.post_recv;
  Call call("ibv_post_recv");
  const int failed = failure(call, ENOMEM);
  if (failed && bad)
    *bad = wr;
  return failed ? failed : real(qp, wr, bad);
}

int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  const auto real = originals(srq->context).ops.post_srq_recv;
  Call call("ibv_post_srq_recv");
  const int failed = failure(call, ENOMEM);
  if (failed && bad)
    *bad = wr;
  return failed ? failed : real(srq, wr, bad);
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

int poll_cq(ibv_cq *cq, int entries, ibv_wc *wc) {
  const auto real = originals(cq->context).ops.poll_cq;
  Call call("ibv_poll_cq");
  const int count = real(cq, entries, wc);
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

int req_notify_cq(ibv_cq *cq, int solicited_only) {
  const auto real = originals(cq->context).ops.req_notify_cq;
  return returned_errno("ibv_req_notify_cq", EIO, [&] { return real(cq, solicited_only); });
}

ibv_mw *alloc_mw(ibv_pd *pd, ibv_mw_type type) {
  const auto real = originals(pd->context).ops.alloc_mw;
  return null_and_errno("ibv_alloc_mw", ENOMEM, [&] { return real(pd, type); });
}

int bind_mw(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) {
  const auto real = originals(qp->context).ops.bind_mw;
  return returned_errno("ibv_bind_mw", EINVAL, [&] { return real(qp, mw, bind); });
}

int dealloc_mw(ibv_mw *mw) {
  const auto real = originals(mw->context).ops.dealloc_mw;
  return ends("ibv_dealloc_mw", EBUSY, mw, false, [&] { return real(mw); });
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

// ---- through verbs_context

ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attr) {
  const auto real = originals(context).create_qp_ex;
  ibv_qp *qp = null_and_errno("ibv_create_qp_ex", ENOMEM, [&] { return real(context, attr); });
  if (qp) {
    remember(qp);
    if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
      wrap_builders(qp);
  }
  return qp;
}

ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr) {
  const auto real = originals(context).create_cq_ex;
  ibv_cq_ex *cq = null_and_errno("ibv_create_cq_ex", ENOMEM, [&] { return real(context, attr); });
  if (cq)
    wrap_cq(cq);
  return cq;
}

ibv_srq *create_srq_ex(ibv_context *context, ibv_srq_init_attr_ex *attr) {
  const auto real = originals(context).create_srq_ex;
  return null_and_errno("ibv_create_srq_ex", ENOMEM, [&] { return real(context, attr); });
}

ibv_dm *alloc_dm(ibv_context *context, ibv_alloc_dm_attr *attr) {
  const auto real = originals(context).alloc_dm;
  return null_and_errno("ibv_alloc_dm", ENOMEM, [&] { return real(context, attr); });
}

int free_dm(ibv_dm *dm) {
  const auto real = originals(dm->context).free_dm;
  return ends("ibv_free_dm", EBUSY, dm, false, [&] { return real(dm); });
}

ibv_mr *reg_dm_mr(ibv_pd *pd, ibv_dm *dm, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  const auto real = originals(pd->context).reg_dm_mr;
  return null_and_errno("ibv_reg_dm_mr", ENOMEM,
                        [&] { return real(pd, dm, offset, length, access); });
}

int query_device_ex(ibv_context *context, const ibv_query_device_ex_input *input,
                    ibv_device_attr_ex *attr, std::size_t size) {
  const auto real = originals(context).query_device_ex;
  return returned_errno("ibv_query_device_ex", EIO,
                        [&] { return real(context, input, attr, size); });
}

int query_port(ibv_context *context, std::uint8_t port, ibv_port_attr *attr, std::size_t size) {
  const auto real = originals(context).query_port;
  return returned_errno("ibv_query_port", EIO, [&] { return real(context, port, attr, size); });
}

} // namespace

void remember(ibv_qp *qp) {
  const std::lock_guard lock(trace::lock_of_all());
  qps()[qp->qp_num] = qp;
}

void forget(const ibv_qp *qp) {
  const std::lock_guard lock(trace::lock_of_all());
  if (const auto found = qps().find(qp->qp_num); found != qps().end() && found->second == qp)
    qps().erase(found);
}

void wrap_context(ibv_context *context) {
  Originals &originals = kept<Originals>().renew(context);
  originals.ops = context->ops;
#define REPLACE(operation)                                                                         \
  if (context->ops.operation) /* the provider has it */                                            \
    context->ops.operation = operation;
  REPLACE(post_send)
  REPLACE(post_recv)
  REPLACE(post_srq_recv)
  REPLACE(poll_cq)
  REPLACE(req_notify_cq)
  REPLACE(alloc_mw)
  REPLACE(bind_mw)
  REPLACE(dealloc_mw)
#undef REPLACE
// GCC 14 takes the context for one at address 0 here, in an inline function of libibverbs: a false
// alarm.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Warray-bounds"
// verbs_get_ctx_op() says whether this libibverbs knows the operation at all.
#define REPLACE(operation)                                                                         \
  if (verbs_context *verbs = verbs_get_ctx_op(context, operation)) {                               \
    originals.operation = verbs->operation;                                                        \
    verbs->operation = operation;                                                                  \
  }
  REPLACE(create_qp_ex)
  REPLACE(create_cq_ex)
  REPLACE(create_srq_ex)
  REPLACE(alloc_dm)
  REPLACE(free_dm)
  REPLACE(reg_dm_mr)
  REPLACE(query_device_ex)
  REPLACE(query_port)
#undef REPLACE
#pragma GCC diagnostic pop
}

} // namespace inject

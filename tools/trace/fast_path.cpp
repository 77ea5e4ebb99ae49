// SPDX-License-Identifier: MIT
// What every context has: post, poll, arm, and memory windows; and what is made through it. The
// originals are kept by context, since each provider brings its own.

#include "fast_path.hpp"

#include "object_registry.hpp"
#include "names.hpp"

#include <arpa/inet.h>
#include <atomic>
#include <mutex>
#include <set>

namespace trace {
namespace {

// What verbs.h calls through, as the provider made it.
struct Originals {
  ibv_context_ops ops;
  decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;
  decltype(verbs_context::create_cq_ex) create_cq_ex = nullptr;
  decltype(verbs_context::create_srq_ex) create_srq_ex = nullptr;
  decltype(verbs_context::alloc_dm) alloc_dm = nullptr;
  decltype(verbs_context::free_dm) free_dm = nullptr;
  decltype(verbs_context::reg_dm_mr) reg_dm_mr = nullptr;
};

struct Qp {
  bool all_signaled = false;
  ibv_qp_cap cap{};
};

struct Srq {
  std::uint32_t max_sge = 0;
};

struct Cq {
  std::atomic<std::uint64_t> empty_polls{0};
  std::mutex mutex;
  std::multiset<std::uint32_t> qps; // that complete here: one for each queue
};

// Only a context whose operations were replaced comes here, so there is something kept of it.
const Originals &originals(const ibv_context *context) {
  return *kept<Originals>().find(context);
}

// A provider refuses more SGEs than the queue was made for, without looking at them; so they may be
// anything.
template <typename Wr> std::uint64_t total(const Wr &wr, std::uint32_t max_sge) {
  std::uint64_t length = 0;
  for (int i = 0; i < wr.num_sge && static_cast<std::uint32_t>(wr.num_sge) <= max_sge; ++i)
    length += wr.sg_list[i].length;
  return length;
}

template <typename Wr> std::uint64_t index_of(const Wr *first, const Wr *wanted) {
  std::uint64_t index = 0;
  for (; first && first != wanted; first = first->next)
    ++index;
  return index;
}

Request request_of(const ibv_qp *qp, const ibv_send_wr &wr) {
  const Qp *its = kept<Qp>().find(qp);
  Request request{.wr_id = wr.wr_id,
                  .opcode = wr.opcode,
                  .flags = wr.send_flags,
                  .length = total(wr, its ? its->cap.max_send_sge : 0)};
  switch (wr.opcode) {
  case IBV_WR_RDMA_WRITE_WITH_IMM:
    request.imm_data = wr.imm_data;
    [[fallthrough]];
  case IBV_WR_RDMA_WRITE:
  case IBV_WR_RDMA_READ:
    request.remote_addr = wr.wr.rdma.remote_addr;
    request.rkey = wr.wr.rdma.rkey;
    break;
  case IBV_WR_ATOMIC_CMP_AND_SWP:
  case IBV_WR_ATOMIC_FETCH_AND_ADD:
    request.remote_addr = wr.wr.atomic.remote_addr;
    request.rkey = wr.wr.atomic.rkey;
    request.compare_add = wr.wr.atomic.compare_add;
    request.swap = wr.wr.atomic.swap;
    break;
  case IBV_WR_SEND_WITH_INV:
  case IBV_WR_LOCAL_INV:
    request.rkey = wr.invalidate_rkey;
    break;
  case IBV_WR_BIND_MW:
    request.rkey = wr.bind_mw.rkey;
    break;
  case IBV_WR_SEND_WITH_IMM:
    request.imm_data = wr.imm_data;
    break;
  default:
    break;
  }
  if (qp->qp_type == IBV_QPT_UD)
    request.dest_qp = wr.wr.ud.remote_qpn;
  return request;
}

// ---- through ibv_context::ops

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) {
  const auto real = originals(qp->context).ops.post_send;
  Event event("ibv_post_send");
  event.json([&](Json &json) {
    List list;
    for (const ibv_send_wr *next = wr; next; next = next->next)
      list.add(request_of(qp, *next), qp);
    event.text([&] { return label(qp) + ": " + list.text(); });
    json.number("qp", qp->qp_num).raw("wrs", list.json());
  });
  const int error = event.errno_returned(real(qp, wr, bad));
  if (error && bad)
    event.json([&](Json &json) { json.number("bad", index_of(wr, *bad)); });
  return error;
}

void receives(Event &event, const std::string &queue, const ibv_recv_wr *wr,
              std::uint32_t max_sge) {
  List list;
  for (; wr; wr = wr->next)
    list.add_receive(wr->wr_id, total(*wr, max_sge));
  event.text([&] { return queue + ": " + list.text(); });
  event.json([&](Json &json) { json.raw("wrs", list.json()); });
}

int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  const auto real = originals(qp->context).ops.post_recv;
  Event event("ibv_post_recv");
  event.json([&](Json &json) { json.number("qp", qp->qp_num); });
  event.note([&] {
    const Qp *its = kept<Qp>().find(qp);
    receives(event, label(qp), wr, its ? its->cap.max_recv_sge : 0);
  });
  const int error = event.errno_returned(real(qp, wr, bad));
  if (error && bad)
    event.json([&](Json &json) { json.number("bad", index_of(wr, *bad)); });
  return error;
}

int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  const auto real = originals(srq->context).ops.post_srq_recv;
  Event event("ibv_post_srq_recv");
  event.json([&](Json &json) { json.string("srq", label(srq)); });
  event.note([&] {
    const Srq *its = kept<Srq>().find(srq);
    receives(event, label(srq), wr, its ? its->max_sge : 0);
  });
  const int error = event.errno_returned(real(srq, wr, bad));
  if (error && bad)
    event.json([&](Json &json) { json.number("bad", index_of(wr, *bad)); });
  return error;
}

Completion completion_of(const ibv_wc &wc) {
  Completion completion{.wr_id = wc.wr_id, .status = wc.status, .qp_num = wc.qp_num};
  if (wc.status != IBV_WC_SUCCESS)
    return completion;
  completion.opcode = wc.opcode;
  if (wc.opcode & IBV_WC_RECV) { // of a SEND, neither means anything
    completion.length = wc.byte_len;
    if (wc.wc_flags & IBV_WC_WITH_IMM)
      completion.imm = ntohl(wc.imm_data);
  }
  return completion;
}

int poll_cq(ibv_cq *cq, int entries, ibv_wc *wc) {
  const auto real = originals(cq->context).ops.poll_cq;
  Event event("ibv_poll_cq");
  const int count = event.negative(real(cq, entries, wc));
  if (count == 0) {
    event.note([&] { count_empty_poll(cq); });
    event.forget();
    return 0;
  }
  event.json([&](Json &json) {
    List list;
    for (int i = 0; i < count; ++i)
      list.add(completion_of(wc[i]));
    event.text([&] { return label(cq) + (count > 0 ? ": " + list.text() : ""); });
    json.string("cq", label(cq)).number("empty", take_empty_polls(cq)).raw("wcs", list.json());
  });
  return count;
}

int req_notify_cq(ibv_cq *cq, int solicited_only) {
  Event event("ibv_req_notify_cq");
  event.text([&] { return label(cq) + (solicited_only ? ", solicited only" : ""); });
  return event.errno_returned(originals(cq->context).ops.req_notify_cq(cq, solicited_only));
}

ibv_mw *alloc_mw(ibv_pd *pd, ibv_mw_type type) {
  Event event("ibv_alloc_mw");
  event.text([&] { return print("%s, type %d", label(pd).c_str(), static_cast<int>(type)); });
  ibv_mw *mw = event.null(originals(pd->context).ops.alloc_mw(pd, type));
  if (mw)
    event.result([&] { return print("%s rkey 0x%x", new_label("mw", mw).c_str(), mw->rkey); });
  return mw;
}

int bind_mw(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) {
  Event event("ibv_bind_mw");
  event.text([&] {
    return print("%s: %s to %s, %llu B, %s", label(qp).c_str(), label(mw).c_str(),
                 label(bind->bind_info.mr).c_str(),
                 static_cast<unsigned long long>(bind->bind_info.length),
                 access_flags(bind->bind_info.mw_access_flags).c_str());
  });
  const int error = event.errno_returned(originals(qp->context).ops.bind_mw(qp, mw, bind));
  if (!error)
    event.result([&] { return print("rkey 0x%x", mw->rkey); });
  return error;
}

int dealloc_mw(ibv_mw *mw) {
  Event event("ibv_dealloc_mw");
  event.text([&] { return label(mw); });
  return event.errno_returned(originals(mw->context).ops.dealloc_mw(mw));
}

// ---- through verbs_context

ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attr) {
  Event event("ibv_create_qp_ex");
  event.text([&] { return print("%s, %s", label(attr->pd).c_str(), describe(*attr).c_str()); });
  ibv_qp *qp = event.null(originals(context).create_qp_ex(context, attr));
  if (qp) {
    made_qp(event, qp, attr->sq_sig_all, attr->cap);
    if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
      event.note([&] { watch_builders(qp); });
  }
  return qp;
}

ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr) {
  Event event("ibv_create_cq_ex");
  event.text([&] {
    return print("%u entries", attr->cqe) + (attr->channel ? ", " + label(attr->channel) : "");
  });
  ibv_cq_ex *cq = event.null(originals(context).create_cq_ex(context, attr));
  if (cq) {
    event.result([&] { return print("%s with %d", new_label("cq", cq).c_str(), cq->cqe); });
    event.note([&] { watch_cq(cq, attr->wc_flags); });
  }
  return cq;
}

ibv_srq *create_srq_ex(ibv_context *context, ibv_srq_init_attr_ex *attr) {
  Event event("ibv_create_srq_ex");
  event.text([&] { return print("%s, %u receives", label(attr->pd).c_str(), attr->attr.max_wr); });
  ibv_srq *srq = event.null(originals(context).create_srq_ex(context, attr));
  if (srq)
    made_srq(event, srq, attr->attr.max_sge);
  return srq;
}

ibv_dm *alloc_dm(ibv_context *context, ibv_alloc_dm_attr *attr) {
  Event event("ibv_alloc_dm");
  event.text([&] { return print("%zu B", attr->length); });
  ibv_dm *dm = event.null(originals(context).alloc_dm(context, attr));
  if (dm)
    event.result([&] { return new_label("dm", dm); });
  return dm;
}

int free_dm(ibv_dm *dm) {
  Event event("ibv_free_dm");
  event.text([&] { return label(dm); });
  return event.errno_returned(originals(dm->context).free_dm(dm));
}

ibv_mr *reg_dm_mr(ibv_pd *pd, ibv_dm *dm, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  Event event("ibv_reg_dm_mr");
  event.text([&] {
    return print("%s, %s at %llu, %zu B, %s", label(pd).c_str(), label(dm).c_str(),
                 static_cast<unsigned long long>(offset), length, access_flags(access).c_str());
  });
  ibv_mr *mr = event.null(originals(pd->context).reg_dm_mr(pd, dm, offset, length, access));
  if (mr)
    event.result([&] {
      return print("%s lkey 0x%x rkey 0x%x", new_label("mr", mr).c_str(), mr->lkey, mr->rkey);
    });
  return mr;
}

} // namespace

void watch_context(ibv_context *context) {
  Originals &originals = kept<Originals>().renew(context);
  originals.ops = context->ops;
  const auto replace = [](auto &operation, auto ours) {
    if (operation) // the provider has it
      operation = ours;
  };
  replace(context->ops.post_send, post_send);
  replace(context->ops.post_recv, post_recv);
  replace(context->ops.post_srq_recv, post_srq_recv);
  replace(context->ops.poll_cq, poll_cq);
  replace(context->ops.req_notify_cq, req_notify_cq);
  replace(context->ops.alloc_mw, alloc_mw);
  replace(context->ops.bind_mw, bind_mw);
  replace(context->ops.dealloc_mw, dealloc_mw);
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
#undef REPLACE
#pragma GCC diagnostic pop
}

template <typename InitAttr> std::string describe(const InitAttr &attr) {
  std::string text = qp_type(attr.qp_type) + ", " + label(attr.send_cq);
  if (attr.recv_cq != attr.send_cq)
    text += "+" + label(attr.recv_cq);
  if (attr.srq)
    text += ", " + label(attr.srq);
  text += print(", %u sends, %u receives", attr.cap.max_send_wr, attr.cap.max_recv_wr);
  return text + (attr.cap.max_inline_data ? print(", %u B inline", attr.cap.max_inline_data) : "");
}
template std::string describe(const ibv_qp_init_attr &attr);
template std::string describe(const ibv_qp_init_attr_ex &attr);

void made_srq(Event &event, ibv_srq *srq, std::uint32_t max_sge) {
  event.result([&] { return new_label("srq", srq); });
  event.note([&] { kept<Srq>().renew(srq).max_sge = max_sge; });
}

void made_qp(Event &event, ibv_qp *qp, bool all_signaled, const ibv_qp_cap &cap) {
  event.result([&] { return label(qp); });
  event.json([&](Json &json) {
    json.number("qp", qp->qp_num)
        .string("type", qp_type(qp->qp_type))
        .flag("sq_sig_all", all_signaled);
  });
  event.note([&] {
    kept<Qp>().renew(qp) = {.all_signaled = all_signaled, .cap = cap};
    qp_uses_cqs(qp, true);
  });
}

void qp_uses_cqs(const ibv_qp *qp, bool uses) {
  for (const ibv_cq *cq : {qp->send_cq, qp->recv_cq}) {
    if (!cq)
      continue;
    Cq &its = kept<Cq>().at(cq);
    const std::lock_guard lock(its.mutex);
    if (uses)
      its.qps.insert(qp->qp_num);
    else if (const auto found = its.qps.find(qp->qp_num); found != its.qps.end())
      its.qps.erase(found);
  }
}

std::optional<std::uint32_t> only_qp(const void *cq) {
  Cq &its = kept<Cq>().at(cq);
  const std::lock_guard lock(its.mutex);
  if (its.qps.empty() || *its.qps.begin() != *its.qps.rbegin())
    return std::nullopt;
  return *its.qps.begin();
}

void count_empty_poll(const void *cq) {
  ++kept<Cq>().at(cq).empty_polls;
}

std::uint64_t take_empty_polls(const void *cq) {
  return kept<Cq>().at(cq).empty_polls.exchange(0);
}

void List::add(const std::string &text, const Json &json) {
  text_ += (text_.empty() ? "" : "; ") + text;
  json_ += (json_.empty() ? "" : ",") + json.object();
}

void List::add(const Request &request, const ibv_qp *qp) {
  const std::string opcode = send_opcode(request.opcode);
  const bool atomic =
      request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const bool remote = atomic || opcode.starts_with("RDMA_") || opcode == "FLUSH" ||
                      opcode == "ATOMIC_WRITE"; // the headers of old do not have the last two
  const Qp *its = kept<Qp>().find(qp);
  std::string text =
      print("%s wr_id %llu, %llu B", opcode.c_str(), static_cast<unsigned long long>(request.wr_id),
            static_cast<unsigned long long>(request.length));
  Json json;
  json.number("wr_id", request.wr_id)
      .string("opcode", opcode)
      .number("length", request.length)
      .flag("signaled", (request.flags & IBV_SEND_SIGNALED) || (its && its->all_signaled))
      .flag("inline", request.flags & IBV_SEND_INLINE);
  if (request.flags & IBV_SEND_FENCE)
    json.flag("fenced", true);
  if (request.flags & IBV_SEND_SOLICITED)
    json.flag("solicited", true);
  if (opcode.ends_with("WITH_IMM")) {
    text += print(", imm 0x%x", ntohl(request.imm_data));
    json.number("imm", ntohl(request.imm_data));
  }
  if (remote)
    json.number("addr", request.remote_addr);
  if (remote || request.rkey) { // or the one to invalidate
    text += print(", rkey 0x%x", request.rkey);
    json.number("rkey", request.rkey);
  }
  if (atomic) {
    text += print(", %s %llu", request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? "add" : "compare",
                  static_cast<unsigned long long>(request.compare_add));
    json.number("compare_add", request.compare_add);
  }
  if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    text += print(", swap %llu", static_cast<unsigned long long>(request.swap));
    json.number("swap", request.swap);
  }
  if (qp->qp_type == IBV_QPT_UD) {
    text += print(", to QP 0x%x", request.dest_qp);
    json.number("dest_qp", request.dest_qp);
  }
  if (request.flags)
    text += ", " + send_flags(request.flags);
  add(text, json);
}

void List::add(const Completion &completion) {
  const bool worked = completion.status == IBV_WC_SUCCESS;
  Json json;
  json.number("wr_id", completion.wr_id).string("status", completion_status(completion.status));
  if (completion.qp_num)
    json.number("qp", *completion.qp_num);
  std::string text =
      print("%s wr_id %llu", worked ? completion_opcode(completion.opcode).c_str() : "failed",
            static_cast<unsigned long long>(completion.wr_id));
  if (!worked)
    return add(text + ", " + completion_status(completion.status), json);
  json.string("opcode", completion_opcode(completion.opcode));
  if (completion.length) {
    text += print(", %u B", *completion.length);
    json.number("length", *completion.length);
  }
  if (completion.imm) {
    text += print(", imm 0x%x", *completion.imm);
    json.number("imm", *completion.imm);
  }
  add(text, json);
}

void List::add_receive(std::uint64_t wr_id, std::uint64_t length) {
  Json json;
  json.number("wr_id", wr_id).number("length", length);
  add(print("wr_id %llu, %llu B", static_cast<unsigned long long>(wr_id),
            static_cast<unsigned long long>(length)),
      json);
}

} // namespace trace

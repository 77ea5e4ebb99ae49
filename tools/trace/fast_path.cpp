// SPDX-License-Identifier: MIT
// The operations of each context: post, poll, arm, memory windows; and the objects that are made
// through it.

#include "fast_path.hpp"

#include "calls.hpp"
#include "names.hpp"
#include "object_registry.hpp"

#include <arpa/inet.h>
#include <atomic>
#include <mutex>
#include <set>

namespace trace {
namespace {

namespace call = preload::call;
using preload::kept;

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
  std::multiset<std::uint32_t> qps; // numbers of QPs that complete here, once for each queue
};

template <typename Wr> std::uint64_t index_of(const Wr *first, const Wr *wanted) {
  std::uint64_t index = 0;
  for (; first && first != wanted; first = first->next)
    ++index;
  return index;
}

Completion completion_of(const ibv_wc &wc) {
  Completion completion{.wr_id = wc.wr_id, .status = wc.status, .qp_num = wc.qp_num};
  if (wc.status != IBV_WC_SUCCESS)
    return completion;
  completion.opcode = wc.opcode;
  if (wc.opcode & IBV_WC_RECV) { // neither field means anything for a SEND
    completion.length = wc.byte_len;
    if (wc.wc_flags & IBV_WC_WITH_IMM)
      completion.imm = ntohl(wc.imm_data);
  }
  return completion;
}

// ---- what the arguments say

std::string words(call::ibv_req_notify_cq, ibv_cq *cq, int solicited_only) {
  return label(cq) + (solicited_only ? ", solicited only" : "");
}
std::string words(call::ibv_alloc_mw, ibv_pd *pd, ibv_mw_type type) {
  return label(pd) + print(", type %d", static_cast<int>(type));
}
std::string words(call::ibv_bind_mw, ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) {
  const ibv_mw_bind_info &info = bind->bind_info;
  return print("%s: %s to %s, %llu B, ", label(qp).c_str(), label(mw).c_str(),
               label(info.mr).c_str(), static_cast<unsigned long long>(info.length)) +
         access_flags(info.mw_access_flags);
}
std::string words(call::ibv_create_qp_ex, ibv_context *, ibv_qp_init_attr_ex *attr) {
  return label(attr->pd) + ", " + describe(*attr);
}
std::string words(call::ibv_create_cq_ex, ibv_context *, ibv_cq_init_attr_ex *attr) {
  return print("%u entries", attr->cqe) + (attr->channel ? ", " + label(attr->channel) : "");
}
std::string words(call::ibv_create_srq_ex, ibv_context *, ibv_srq_init_attr_ex *attr) {
  return label(attr->pd) + print(", %u receives", attr->attr.max_wr);
}
std::string words(call::ibv_alloc_dm, ibv_context *, ibv_alloc_dm_attr *attr) {
  return print("%zu B", attr->length);
}
std::string words(call::ibv_reg_dm_mr, ibv_pd *pd, ibv_dm *dm, std::uint64_t offset,
                  std::size_t length, unsigned access) {
  return print("%s, %s at %llu, %zu B, ", label(pd).c_str(), label(dm).c_str(),
               static_cast<unsigned long long>(offset), length) +
         access_flags(access);
}

// ---- what came of the call

std::string made(Event &, call::ibv_alloc_mw, ibv_mw *mw, ibv_pd *, ibv_mw_type) {
  return new_label("mw", mw) + print(" rkey 0x%x", mw->rkey);
}
std::string made(Event &, call::ibv_bind_mw, int, ibv_qp *, ibv_mw *mw, ibv_mw_bind *) {
  return print("rkey 0x%x", mw->rkey);
}
std::string made(Event &event, call::ibv_create_qp_ex, ibv_qp *qp, ibv_context *,
                 ibv_qp_init_attr_ex *attr) {
  if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
    preload::replace_builders(qp, completed_list);
  return made_qp(event, qp, attr->sq_sig_all, attr->cap);
}
std::string made(Event &, call::ibv_create_cq_ex, ibv_cq_ex *cq, ibv_context *,
                 ibv_cq_init_attr_ex *attr) {
  watch_cq(cq, attr->wc_flags);
  return print("%s with %d", new_label("cq", cq).c_str(), cq->cqe);
}
std::string made(Event &, call::ibv_create_srq_ex, ibv_srq *srq, ibv_context *,
                 ibv_srq_init_attr_ex *attr) {
  return made_srq(srq, attr->attr.max_sge);
}
std::string made(Event &, call::ibv_alloc_dm, ibv_dm *dm, ibv_context *, ibv_alloc_dm_attr *) {
  return new_label("dm", dm);
}
template <typename... Args> std::string made(Event &, call::ibv_reg_dm_mr, ibv_mr *mr, Args...) {
  return new_label("mr", mr) + print(" lkey 0x%x rkey 0x%x", mr->lkey, mr->rkey);
}

} // namespace
} // namespace trace

#include "recorded.hpp"

namespace trace {

// Posts, and says which work request was refused.
template <typename Real, typename Wr> int post(Event &event, Real real, Wr *wr, Wr **bad) {
  const int error = event.errno_returned(real());
  if (error && bad)
    event.json([&](Json &json) { json.number("bad", index_of(wr, *bad)); });
  return error;
}

template <typename Real>
int around(call::ibv_post_send kind, Real real, ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) {
  Event event(kind.name);
  event.json([&](Json &json) {
    const Qp *its = kept<Qp>().find(qp);
    List list;
    for (const ibv_send_wr *next = wr; next; next = next->next)
      list.add(preload::request_of(qp, *next, its ? its->cap.max_send_sge : 0), qp);
    event.text([&] { return label(qp) + ": " + list.text(); });
    json.number("qp", qp->qp_num).raw("wrs", list.json());
  });
  return post(event, real, wr, bad);
}

void receives(Event &event, const std::string &queue, const ibv_recv_wr *wr,
              std::uint32_t max_sge) {
  List list;
  for (; wr; wr = wr->next) {
    std::uint64_t length = 0;
    for (const ibv_sge &sge : preload::elements(*wr, max_sge))
      length += sge.length;
    list.add_receive(wr->wr_id, length);
  }
  event.text([&] { return queue + ": " + list.text(); });
  event.json([&](Json &json) { json.raw("wrs", list.json()); });
}

template <typename Real>
int around(call::ibv_post_recv kind, Real real, ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  Event event(kind.name);
  event.json([&](Json &json) { json.number("qp", qp->qp_num); });
  event.note([&] {
    const Qp *its = kept<Qp>().find(qp);
    receives(event, label(qp), wr, its ? its->cap.max_recv_sge : 0);
  });
  return post(event, real, wr, bad);
}

template <typename Real>
int around(call::ibv_post_srq_recv kind, Real real, ibv_srq *srq, ibv_recv_wr *wr,
           ibv_recv_wr **bad) {
  Event event(kind.name);
  event.json([&](Json &json) { json.string("srq", label(srq)); });
  event.note([&] {
    const Srq *its = kept<Srq>().find(srq);
    receives(event, label(srq), wr, its ? its->max_sge : 0);
  });
  return post(event, real, wr, bad);
}

template <typename Real>
int around(call::ibv_poll_cq kind, Real real, ibv_cq *cq, int, ibv_wc *wc) {
  Event event(kind.name);
  const int count = event.negative(real());
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

std::string made_srq(ibv_srq *srq, std::uint32_t max_sge) {
  kept<Srq>().renew(srq).max_sge = max_sge;
  return new_label("srq", srq);
}

std::string made_qp(Event &event, ibv_qp *qp, bool all_signaled, const ibv_qp_cap &cap) {
  event.json([&](Json &json) {
    json.number("qp", qp->qp_num)
        .string("type", qp_type(qp->qp_type))
        .flag("sq_sig_all", all_signaled);
  });
  kept<Qp>().renew(qp) = {.all_signaled = all_signaled, .cap = cap};
  qp_uses_cqs(qp, true);
  return label(qp);
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

void List::add(const preload::Request &request, const ibv_qp *qp) {
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
  const std::string text = print("wr_id %llu, %llu B", static_cast<unsigned long long>(wr_id),
                                 static_cast<unsigned long long>(length));
  if (text == receive_) {
    json_ += "," + json.object();
    ++equal_;
    return;
  }
  text_ = this->text();
  add(text, json);
  receive_ = text;
  equal_ = 1;
}

} // namespace trace

using namespace trace;
#include "context_operations.hpp"

void trace::watch_context(ibv_context *context) {
  replace_operations(context);
}

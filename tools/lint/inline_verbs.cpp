// SPDX-License-Identifier: MIT
// The verbs that are inline functions of verbs.h: post, poll, arm, memory windows, and what is made
// through a context. They go through pointers in the context, which are replaced here.

#include "tracked.hpp"

#include <cerrno>
#include <poll.h>
#include <unistd.h>
#include <unordered_map>

namespace lint {
namespace {

struct Originals {
  ibv_context_ops ops{};
  decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;
  decltype(verbs_context::create_cq_ex) create_cq_ex = nullptr;
  decltype(verbs_context::create_srq_ex) create_srq_ex = nullptr;
  decltype(verbs_context::reg_dm_mr) reg_dm_mr = nullptr;
};

std::unordered_map<const ibv_context *, Originals> &all_originals() {
  static auto &all = *new std::unordered_map<const ibv_context *, Originals>;
  return all;
}

// Stays where it is as long as the context is watched.
const Originals &originals(const ibv_context *context) {
  const Locked lock;
  return all_originals()[context];
}

template <typename Wr> std::vector<Piece> pieces(const Wr &wr, unsigned most) {
  std::vector<Piece> result;
  for (int i = 0; i < wr.num_sge && static_cast<unsigned>(wr.num_sge) <= most; ++i)
    result.push_back({wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey});
  return result;
}

unsigned max_sge(const void *queue, bool send) {
  const Locked lock;
  if (const auto qp = find<Qp>(queue))
    return send ? qp->cap.max_send_sge : qp->cap.max_recv_sge;
  const auto srq = find<Srq>(queue);
  return srq ? srq->max_sge : 0;
}

template <typename Wr> std::size_t length_from(const Wr *wr) {
  std::size_t count = 0;
  for (; wr; wr = wr->next)
    ++count;
  return count;
}

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) {
  const Use use("ibv_post_send", qp);
  if (use.refused())
    return EINVAL;
  std::vector<Request> requests;
  const unsigned most = max_sge(qp, true);
  for (const ibv_send_wr *next = wr; next; next = next->next) {
    Request request{.wr_id = next->wr_id, .opcode = next->opcode, .flags = next->send_flags};
    request.sges = next->num_sge;
    if (next->opcode == IBV_WR_BIND_MW) {
      request.binds = next->bind_mw.rkey;
      request.sges = 0;
    } else if (next->opcode != IBV_WR_LOCAL_INV) {
      request.pieces = pieces(*next, most);
    }
    switch (next->opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      request.rkey = next->wr.rdma.rkey;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      request.rkey = next->wr.atomic.rkey;
      break;
    default:
      request.to = next->wr.ud.remote_qpn; // of a UD queue pair
      request.qkey = next->wr.ud.remote_qkey;
      break;
    }
    requests.push_back(std::move(request));
  }
  const std::uint64_t batch = will_send(qp, requests);
  ibv_send_wr *refused = wr;
  const int error = originals(qp->context).ops.post_send(qp, wr, &refused);
  did_send(qp, batch, error ? length_from(refused) : 0, error);
  if (error && bad)
    *bad = refused;
  return error;
}

template <typename Post, typename Queue>
int receive(const char *call, Post post, Queue *queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  const Use use(call, queue);
  if (use.refused())
    return EINVAL;
  std::vector<Request> requests;
  const unsigned most = max_sge(queue, false);
  for (const ibv_recv_wr *next = wr; next; next = next->next) {
    Request request{.wr_id = next->wr_id};
    request.pieces = pieces(*next, most);
    request.sges = next->num_sge;
    requests.push_back(std::move(request));
  }
  const std::uint64_t batch = will_receive(queue, requests);
  ibv_recv_wr *refused = wr;
  const int error = post(queue, wr, &refused);
  did_receive(queue, batch, error ? length_from(refused) : 0, error);
  if (error && bad)
    *bad = refused;
  return error;
}

int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  return receive("ibv_post_recv", originals(qp->context).ops.post_recv, qp, wr, bad);
}

int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  return receive("ibv_post_srq_recv", originals(srq->context).ops.post_srq_recv, srq, wr, bad);
}

int poll_cq(ibv_cq *cq, int entries, ibv_wc *wc) {
  const Use use("ibv_poll_cq", cq);
  if (use.refused())
    return -1;
  const int count = originals(cq->context).ops.poll_cq(cq, entries, wc);
  polled(cq);
  for (int i = 0; i < count; ++i)
    completed(cq, wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].qp_num);
  return count;
}

int req_notify_cq(ibv_cq *cq, int solicited_only) {
  const Use use("ibv_req_notify_cq", cq);
  if (use.refused())
    return EINVAL;
  armed(cq, solicited_only != 0);
  return originals(cq->context).ops.req_notify_cq(cq, solicited_only);
}

ibv_mw *alloc_mw(ibv_pd *pd, ibv_mw_type type) {
  const Use use("ibv_alloc_mw", pd);
  if (use.refused())
    return errno = EINVAL, nullptr;
  ibv_mw *mw = originals(pd->context).ops.alloc_mw(pd, type);
  if (mw) {
    const Locked lock;
    add<Mw>(mw, "mw", pd->context).pd = pd;
  }
  return mw;
}

int bind_mw(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) {
  const Use use("ibv_bind_mw", qp);
  if (use.refused())
    return EINVAL;
  const Request request{.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .flags = bind->send_flags};
  const std::uint64_t batch = will_send(qp, {request});
  const int error = originals(qp->context).ops.bind_mw(qp, mw, bind);
  did_send(qp, batch, error ? 1 : 0, error);
  return error;
}

int dealloc_mw(ibv_mw *mw) {
  Destruction end("ibv_dealloc_mw", mw);
  if (end.refused())
    return EINVAL;
  const int error = originals(mw->context).ops.dealloc_mw(mw);
  end.ended(error);
  return error;
}

ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attr) {
  ibv_qp *qp = originals(context).create_qp_ex(context, attr);
  if (qp) {
    made_qp(qp, attr->cap, attr->sq_sig_all);
    if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
      watch_builders(qp);
  }
  return qp;
}

ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr) {
  ibv_cq_ex *cq = originals(context).create_cq_ex(context, attr);
  if (cq) {
    made_cq(ibv_cq_ex_to_cq(cq), attr->channel);
    watch_cq(cq, attr->wc_flags);
  }
  return cq;
}

ibv_srq *create_srq_ex(ibv_context *context, ibv_srq_init_attr_ex *attr) {
  ibv_srq *srq = originals(context).create_srq_ex(context, attr);
  if (srq && !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type == IBV_SRQT_XRC))
    made_srq(srq, attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : nullptr, attr->attr.max_sge);
  return srq;
}

ibv_mr *reg_dm_mr(ibv_pd *pd, ibv_dm *dm, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  ibv_mr *mr = originals(pd->context).reg_dm_mr(pd, dm, offset, length, access);
  if (mr)
    made_mr(pd, mr, 0, nullptr, access);
  return mr;
}

bool is_readable(int fd) {
  pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) == 1;
}

} // namespace

// Completions that are in a CQ at its end, and no event for one of them: the program has missed
// them. With an event there, it only did not want to wait any more. Nothing is lost: no queue pair
// uses the CQ any more, so its destruction will work.
void look_for_missed(ibv_cq *cq) {
  std::shared_ptr<Cq> its;
  {
    const Locked lock;
    its = find<Cq>(cq);
    if (!its || !its->live || its->pid != getpid() || !(its->armed_late || its->armed_solicited))
      return;
    for (const auto &[address, qp] : all<Qp>())
      if (qp->send_cq == cq || qp->recv_cq == cq)
        return;
  }
  ibv_wc wc{};
  int missed = 0;
  while (originals(cq->context).ops.poll_cq(cq, 1, &wc) == 1)
    missed += wc.status == IBV_WC_SUCCESS;
  const bool is_event_there = cq->channel && is_readable(cq->channel->fd);
  const Locked lock;
  if (missed && !is_event_there)
    report(its->armed_solicited ? rules::not_solicited : rules::no_poll_after_arm,
           its->name +
               print(" was armed, and %d completions were in it when it was destroyed", missed),
           its->name, {{"made", its->made}, {"armed", its->armed_at}});
}

void watch_context(ibv_context *context) {
  Originals *its = nullptr;
  {
    const Locked lock;
    add<Context>(context, "context ", context);
    its = &(all_originals()[context] = Originals{});
  }
  its->ops = context->ops;
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
// GCC 14 takes the context for one at address 0 here: a false alarm, as in tools/trace.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Warray-bounds"
#define REPLACE(operation)                                                                         \
  if (verbs_context *verbs = verbs_get_ctx_op(context, operation)) {                               \
    its->operation = verbs->operation;                                                             \
    verbs->operation = operation;                                                                  \
  }
  REPLACE(create_qp_ex)
  REPLACE(create_cq_ex)
  REPLACE(create_srq_ex)
  REPLACE(reg_dm_mr)
#undef REPLACE
#pragma GCC diagnostic pop
}

} // namespace lint

// SPDX-License-Identifier: MIT
// The verbs that are inline functions of verbs.h: post, poll, arm, memory windows, and what is made
// through a context.

#include "calls.hpp"
#include "failed_calls.hpp"
#include "tracked.hpp"

#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <unistd.h>

namespace lint {
namespace {

namespace call = preload::call;

unsigned max_sge(const void *queue, bool send) {
  const Locked lock;
  if (const auto qp = find<Qp>(queue))
    return send ? qp->cap.max_send_sge : qp->cap.max_recv_sge;
  const auto srq = find<Srq>(queue);
  return srq ? srq->max_sge : 0;
}

// The members that both structs have.
ibv_qp_init_attr base_of(const ibv_qp_init_attr_ex &attr) {
  return {.qp_context = attr.qp_context,
          .send_cq = attr.send_cq,
          .recv_cq = attr.recv_cq,
          .srq = attr.srq,
          .cap = attr.cap,
          .qp_type = attr.qp_type,
          .sq_sig_all = attr.sq_sig_all};
}

std::string why_failed(call::ibv_create_qp_ex, int error, ibv_context *context,
                       ibv_qp_init_attr_ex *attr) {
  return error == EINVAL ? why_no_qp(context, base_of(*attr)) : "";
}

template <typename Wr> std::size_t length_from(const Wr *wr) {
  std::size_t count = 0;
  for (; wr; wr = wr->next)
    ++count;
  return count;
}

void made(call::ibv_alloc_mw, ibv_mw *mw, ibv_pd *pd, ibv_mw_type) {
  const Locked lock;
  add<Mw>(mw, "mw", pd->context).pd = pd;
}
void made(call::ibv_create_qp_ex, ibv_qp *qp, ibv_context *, ibv_qp_init_attr_ex *attr) {
  made_qp(qp, attr->cap, attr->sq_sig_all);
  if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
    const LibraryScope library_scope;
    preload::replace_builders(qp, complete_list);
  }
}
void made(call::ibv_create_cq_ex, ibv_cq_ex *cq, ibv_context *, ibv_cq_init_attr_ex *attr) {
  made_cq(ibv_cq_ex_to_cq(cq), attr->channel);
  watch_cq(cq, attr->wc_flags);
}
void made(call::ibv_create_srq_ex, ibv_srq *srq, ibv_context *, ibv_srq_init_attr_ex *attr) {
  if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type == IBV_SRQT_XRC))
    made_srq(srq, attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : nullptr, attr->attr.max_sge);
}
void made(call::ibv_reg_dm_mr, ibv_mr *mr, ibv_pd *pd, ibv_dm *, std::uint64_t, std::size_t,
          unsigned access) {
  made_mr(pd, mr, 0, nullptr, access);
}

bool is_readable(int fd) {
  pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) == 1;
}

} // namespace
} // namespace lint

#include "checked.hpp"

namespace lint {

// Makes the real call, which says in *bad from where on it has refused. If it does not say, that is
// from the first one on. A program's *bad changes only with an error.
template <typename Kind, typename Real, typename Wr, typename Then>
int posted(Kind kind, Real real, Wr *wr, Wr **bad, Then then) {
  Wr *const before = bad ? *bad : nullptr;
  if (bad)
    *bad = wr;
  return called(kind, real, [&](int error) {
    then(error ? length_from(bad ? *bad : wr) : 0, error);
    if (!error && bad)
      *bad = before;
  });
}

template <typename Real>
ibv_qp *around(call::ibv_create_qp_ex kind, Real real, ibv_context *context,
               ibv_qp_init_attr_ex *attr) {
  if (attr && refuses_qp(kind.name, context, base_of(*attr)))
    return preload::failed_with<ibv_qp *>(kind, EINVAL);
  return checked(kind, kind.name, real, context, attr);
}

template <typename Real>
int around(call::ibv_post_send kind, Real real, ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) {
  if (refuses_list(kind.name, qp, wr, bad))
    return EINVAL;
  const auto posts = [&] {
    std::vector<Request> requests;
    const unsigned most = max_sge(qp, true);
    for (const ibv_send_wr *next = wr; next; next = next->next)
      requests.push_back(preload::request_of(qp, *next, most));
    const std::uint64_t batch = will_send(qp, requests);
    return posted(kind, real, wr, bad,
                  [&](std::size_t refused, int error) { did_send(qp, batch, refused, error); });
  };
  return checked(kind, kind.name, posts, qp);
}

template <typename Kind, typename Real>
int receive(Kind kind, Real real, const void *queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  if (refuses_list(kind.name, queue, wr, bad))
    return EINVAL;
  const auto posts = [&] {
    std::vector<Request> requests;
    const unsigned most = max_sge(queue, false);
    for (const ibv_recv_wr *next = wr; next; next = next->next) {
      const auto sges = preload::elements(*next, most);
      requests.push_back(
          {.wr_id = next->wr_id, .sge_count = next->num_sge, .sges = {sges.begin(), sges.end()}});
    }
    const std::uint64_t batch = will_receive(queue, requests);
    return posted(kind, real, wr, bad, [&](std::size_t refused, int error) {
      did_receive(queue, batch, refused, error);
    });
  };
  return checked(kind, kind.name, posts, queue);
}

template <typename Real>
int around(call::ibv_post_recv kind, Real real, ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  return receive(kind, real, qp, wr, bad);
}
template <typename Real>
int around(call::ibv_post_srq_recv kind, Real real, ibv_srq *srq, ibv_recv_wr *wr,
           ibv_recv_wr **bad) {
  return receive(kind, real, srq, wr, bad);
}

template <typename Real>
int around(call::ibv_poll_cq kind, Real real, ibv_cq *cq, int entries, ibv_wc *wc) {
  const auto polls = [&] {
    return called(kind, real, [&](int count) {
      polled(cq, entries, count);
      for (int i = 0; i < count; ++i) {
        completed(cq, wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].qp_num);
        poison(wc[i]);
      }
    });
  };
  return checked(kind, kind.name, polls, cq);
}

template <typename Real>
int around(call::ibv_req_notify_cq kind, Real real, ibv_cq *cq, int solicited_only) {
  const auto arms = [&] {
    armed(cq, solicited_only != 0);
    return real();
  };
  return checked(kind, kind.name, arms, cq);
}

template <typename Real>
int around(call::ibv_bind_mw kind, Real real, ibv_qp *qp, ibv_mw *, ibv_mw_bind *bind) {
  const auto binds = [&] {
    const std::uint64_t batch = will_send(
        qp, {{.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .flags = bind->send_flags}});
    return called(kind, real, [&](int error) { did_send(qp, batch, error ? 1 : 0, error); });
  };
  return checked(kind, kind.name, binds, qp);
}

} // namespace lint

using namespace lint;
#include "context_operations.hpp"

void lint::watch_context(ibv_context *context) {
  {
    const Locked lock;
    add<Context>(context, "context ", context);
  }
  const LibraryScope library_scope;
  replace_operations(context);
}

// Completions that are in a CQ at its end, and no event for one of them: the program has missed
// them. With an event there, it only did not want to wait any more. Nothing is lost: no queue pair
// uses the CQ any more, so its destruction will work.
void lint::check_missed(ibv_cq *cq) {
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
  const auto real = preload::kept<Originals>().find(cq->context)->poll_cq;
  ibv_wc wc{};
  int missed = 0;
  while (real(cq, 1, &wc) == 1)
    missed += wc.status == IBV_WC_SUCCESS;
  const bool is_event_there = cq->channel && is_readable(cq->channel->fd);
  const Locked lock;
  if (missed && !is_event_there)
    report(its->armed_solicited ? rules::not_solicited : rules::no_poll_after_arm,
           its->name +
               print(" was armed, and %d completions were in it when it was destroyed", missed),
           its->name, {{"made", its->made}, {"armed", its->armed_at}});
}

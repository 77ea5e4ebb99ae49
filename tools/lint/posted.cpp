// SPDX-License-Identifier: MIT
// Posted requests, completions and events: the rules of the queues, and those of the memory that
// requests use.

#include "tracked.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace lint {
namespace {

const char *word(ibv_wr_opcode opcode) {
  switch (opcode) {
  case IBV_WR_RDMA_WRITE:
    return "WRITE";
  case IBV_WR_RDMA_WRITE_WITH_IMM:
    return "WRITE_WITH_IMM";
  case IBV_WR_SEND:
    return "SEND";
  case IBV_WR_SEND_WITH_IMM:
    return "SEND_WITH_IMM";
  case IBV_WR_SEND_WITH_INV:
    return "SEND_WITH_INV";
  case IBV_WR_RDMA_READ:
    return "READ";
  case IBV_WR_ATOMIC_CMP_AND_SWP:
    return "compare-and-swap";
  case IBV_WR_ATOMIC_FETCH_AND_ADD:
    return "fetch-and-add";
  case IBV_WR_BIND_MW:
    return "BIND_MW";
  case IBV_WR_LOCAL_INV:
    return "LOCAL_INV";
  default:
    return "request";
  }
}

bool is_send(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}

// Whether the NIC writes to the local memory of such a request.
bool is_target(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

unsigned access_of(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
         : is_target(opcode)        ? IBV_ACCESS_REMOTE_ATOMIC
                                    : IBV_ACCESS_REMOTE_WRITE;
}

std::string words(const Qp &qp, const Posted &posted) {
  return print("%s, %s wr_id %llu, %llu B", qp.name.c_str(), posted.what,
               static_cast<unsigned long long>(posted.wr_id),
               static_cast<unsigned long long>(posted.length));
}

// Looks at the memory of a request and adds it to `posted`. Under the lock.
//
// @param target whether the NIC writes to it
void take_ranges(const Object &queue, const void *pd, const Request &request, bool target,
                 Posted &posted) {
  for (const Piece &piece : request.pieces) {
    posted.length += piece.length;
    if (!piece.length)
      continue;
    const std::string what = print("%s wr_id %llu: %llu B at 0x%llx, lkey 0x%x", posted.what,
                                   static_cast<unsigned long long>(request.wr_id),
                                   static_cast<unsigned long long>(piece.length),
                                   static_cast<unsigned long long>(piece.address), piece.lkey);
    const auto mr = region(queue.context, piece.lkey);
    if (!mr) {
      report(rules::unknown_lkey, what, queue.name, queue.history());
      continue;
    }
    if (mr->pd != pd)
      report(rules::other_pd, what + ": " + mr->name + " is of another PD", mr->name,
             mr->history());
    if (piece.address < mr->base || piece.address - mr->base > mr->length ||
        mr->length - (piece.address - mr->base) < piece.length) {
      report(rules::outside_region,
             what + print(": %s has %llu B from 0x%llx", mr->name.c_str(),
                          static_cast<unsigned long long>(mr->length),
                          static_cast<unsigned long long>(mr->base)),
             mr->name, mr->history());
      continue;
    }
    if (target && !(mr->access & IBV_ACCESS_LOCAL_WRITE))
      report(rules::no_local_write, what, mr->name, mr->history());
    Range range{.mr = mr, .length = piece.length};
    if (mr->memory) {
      const std::uint64_t offset = piece.address - mr->base;
      range.memory = mr->memory + offset;
      if (target) {
        mr->target_low = std::min(mr->target_low, offset);
        mr->target_high = std::max(mr->target_high, offset + piece.length);
      } else if (!(mr->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
                 (offset >= mr->target_high || offset + piece.length <= mr->target_low)) {
        range.checked = true; // neither a peer nor a receive changes it
        range.checksum = checksum(range.memory, range.length);
      }
    }
    posted.ranges.push_back(std::move(range));
  }
}

// Whether the payload of a SEND names this rkey, in either byte order.
bool names_key(const Request &request, std::uint32_t rkey, const ibv_context *context) {
  for (const Piece &piece : request.pieces) {
    const auto *bytes = reinterpret_cast<const char *>(piece.address);
    if (!(request.flags & IBV_SEND_INLINE)) {
      const auto mr = region(context, piece.lkey);
      if (!mr || !mr->memory || piece.address < mr->base ||
          piece.address - mr->base + piece.length > mr->length)
        continue;
      bytes = mr->memory + (piece.address - mr->base);
    }
    for (std::uint64_t at = 0; at + 4 <= std::min<std::uint64_t>(piece.length, 512); ++at) {
      std::uint32_t found = 0;
      std::memcpy(&found, bytes + at, sizeof found);
      if (found == rkey || __builtin_bswap32(found) == rkey)
        return true;
    }
  }
  return false;
}

// The rkeys that a SEND must not name yet: of windows whose bind has not completed, unless it is
// posted to this queue pair, which keeps the order. Under the lock.
void look_for_early_keys(const Qp &qp, const Request &request) {
  const auto says = [&](std::uint32_t rkey, const std::string &why, const Object &object) {
    if (rkey && names_key(request, rkey, qp.context))
      report(rules::rkey_early,
             print("SEND wr_id %llu contains rkey 0x%x, ",
                   static_cast<unsigned long long>(request.wr_id), rkey) +
                 why,
             object.name, object.history());
  };
  for (const auto &[address, other] : all<Qp>())
    if (other.get() != &qp)
      for (const Posted &posted : other->sends)
        if (posted.binds)
          says(posted.binds, "which a bind posted to " + other->name + " has yet to make valid",
               *other);
}

void note_pending(const void *queue, std::uint64_t count) {
  const auto cq = find<Cq>(queue);
  if (!cq || !count)
    return;
  cq->pending += count;
  if (cq->pending > static_cast<std::uint64_t>(cq->room))
    report(rules::cq_too_small,
           print("%llu posted requests will complete into %s, which has room for %d",
                 static_cast<unsigned long long>(cq->pending), cq->name.c_str(), cq->room),
           cq->name, cq->history());
}

void note_taken(const void *queue) {
  if (const auto cq = find<Cq>(queue); cq && cq->pending)
    --cq->pending;
}

// The end of one posted request. Under the lock.
void finish(const Qp *qp, Posted &posted, bool worked) {
  for (Range &range : posted.ranges) {
    unprotect(range);
    const auto mr = range.mr.lock();
    if (!worked || !range.checked || !qp || !mr || !mr->live)
      continue;
    const auto offset = static_cast<std::uint64_t>(range.memory - mr->memory);
    if (offset < mr->target_high && offset + range.length > mr->target_low)
      continue; // a receive was posted into it meanwhile
    if (checksum(range.memory, range.length) != range.checksum)
      report(rules::buffer_changed,
             "the buffer of " + words(*qp, posted) + " changed before the completion", mr->name,
             {{"made", mr->made}, {"posted", posted.site}});
  }
}

struct Meaning {
  ibv_wc_status status;
  const Rule &rule;
};
const Meaning meanings[] = {
    {IBV_WC_LOC_LEN_ERR, rules::short_receive},      {IBV_WC_LOC_QP_OP_ERR, rules::local_operation},
    {IBV_WC_LOC_PROT_ERR, rules::local_protection},  {IBV_WC_MW_BIND_ERR, rules::window_bind},
    {IBV_WC_REM_INV_REQ_ERR, rules::remote_request}, {IBV_WC_REM_ACCESS_ERR, rules::remote_access},
    {IBV_WC_REM_OP_ERR, rules::remote_operation},    {IBV_WC_RETRY_EXC_ERR, rules::retry_exceeded},
    {IBV_WC_RNR_RETRY_EXC_ERR, rules::rnr_exceeded},
};

bool is_receive_error(ibv_wc_status status) {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_RDD_VIOL_ERR;
}

bool is_send_error(ibv_wc_status status) {
  return status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR ||
         status == IBV_WC_REM_OP_ERR || status == IBV_WC_RETRY_EXC_ERR ||
         status == IBV_WC_RNR_RETRY_EXC_ERR || status == IBV_WC_MW_BIND_ERR;
}

auto with_id(std::deque<Posted> &posted, std::uint64_t wr_id) {
  return std::find_if(posted.begin(), posted.end(),
                      [&](const Posted &one) { return one.wr_id == wr_id; });
}

// Takes a receive out of its queue. @return nothing if it is unknown
std::vector<Posted> take_receive(Qp &qp, std::uint64_t wr_id) {
  const auto srq = find<Srq>(qp.srq);
  auto &posted = srq ? srq->receives : qp.receives;
  std::vector<Posted> taken;
  if (const auto found = with_id(posted, wr_id); found != posted.end()) {
    taken.push_back(std::move(*found));
    posted.erase(found);
  }
  return taken;
}

// Takes the sends up to this one. @return them, the last one being it
std::vector<Posted> take_sends(Qp &qp, std::uint64_t wr_id, bool any) {
  const auto found = std::find_if(qp.sends.begin(), qp.sends.end(), [&](const Posted &one) {
    return one.wr_id == wr_id && (any || one.signaled);
  });
  std::vector<Posted> taken;
  if (found == qp.sends.end())
    return taken;
  const auto end = found + 1;
  std::move(qp.sends.begin(), end, std::back_inserter(taken));
  qp.sends.erase(qp.sends.begin(), end);
  return taken;
}

} // namespace

namespace {

// @param wanted requests that should be outstanding at once
void look_at_room(const Qp &qp, std::size_t wanted) {
  if (wanted <= qp.cap.max_send_wr)
    return;
  const bool signaled = std::any_of(qp.sends.begin(), qp.sends.end(),
                                    [](const Posted &posted) { return posted.signaled; });
  const std::string what = print("%zu requests would be outstanding in %s, which has room for %u",
                                 wanted, qp.name.c_str(), qp.cap.max_send_wr);
  report(signaled ? rules::queue_full : rules::never_signaled,
         signaled ? what : what + ", and none of them is signaled", qp.name, qp.history());
}

} // namespace

std::map<std::uint32_t, unsigned> &used_access() {
  static auto &access = *new std::map<std::uint32_t, unsigned>;
  return access;
}

void will_send(ibv_qp *queue, const std::vector<Request> &requests) {
  const Locked lock;
  const auto qp = find<Qp>(queue);
  if (!qp || requests.empty())
    return;
  const Site site = Site::here();
  if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR)
    report(rules::wrong_state,
           print("ibv_post_send in state %s", qp->state == IBV_QPS_RESET  ? "RESET"
                                              : qp->state == IBV_QPS_INIT ? "INIT"
                                                                          : "RTR"),
           qp->name, qp->history());
  if (qp->failed && qp->state == IBV_QPS_RTS)
    report(rules::status_ignored,
           print("ibv_post_send after a completion with status \"%s\"", qp->failure), qp->name,
           {{"made", qp->made}, {"failed", qp->failed_at}});
  std::uint64_t signaled = 0;
  for (const Request &request : requests) {
    Posted posted{.wr_id = request.wr_id, .what = word(request.opcode), .site = site};
    posted.signaled = qp->all_signaled || request.flags & IBV_SEND_SIGNALED;
    posted.binds = request.binds;
    if (request.sges > static_cast<int>(qp->cap.max_send_sge))
      report(rules::too_many_sges,
             print("%s wr_id %llu has %d elements, %s takes %u", posted.what,
                   static_cast<unsigned long long>(request.wr_id), request.sges, qp->name.c_str(),
                   qp->cap.max_send_sge),
             qp->name, qp->history());
    if (request.flags & IBV_SEND_INLINE) {
      for (const Piece &piece : request.pieces)
        posted.length += piece.length;
      if (posted.length > qp->cap.max_inline_data)
        report(rules::inline_too_long,
               print("%s wr_id %llu has %llu B inline, %s takes %u", posted.what,
                     static_cast<unsigned long long>(request.wr_id),
                     static_cast<unsigned long long>(posted.length), qp->name.c_str(),
                     qp->cap.max_inline_data),
               qp->name, qp->history());
    } else {
      take_ranges(*qp, qp->pd, request, is_target(request.opcode), posted);
    }
    if (is_target(request.opcode) && qp->state == IBV_QPS_RTS && !qp->attr.max_rd_atomic)
      report(rules::no_rd_atomic,
             print("%s wr_id %llu", posted.what, static_cast<unsigned long long>(request.wr_id)),
             qp->name, qp->history());
    if (request.rkey)
      used_access()[request.rkey] |= access_of(request.opcode);
    if (is_send(request.opcode))
      look_for_early_keys(*qp, request);
    signaled += posted.signaled;
    qp->sends.push_back(std::move(posted));
  }
  qp->sent = true;
  // SoftRoCE frees the place of a request when it is done; other NICs when its completion is taken.
  look_at_room(*qp, qp->sends.size());
  note_pending(qp->send_cq, signaled);
}

void failed_to_send(ibv_qp *queue, std::size_t refused, int error) {
  const Locked lock;
  const auto qp = find<Qp>(queue);
  if (!qp)
    return;
  const std::size_t outstanding = qp->sends.size() - std::min(qp->sends.size(), refused);
  for (; refused && !qp->sends.empty(); --refused) {
    if (qp->sends.back().signaled)
      note_taken(qp->send_cq);
    qp->sends.pop_back();
  }
  if (error == ENOMEM)
    look_at_room(*qp, outstanding + 1);
}

void will_receive(const void *queue, const std::vector<Request> &requests) {
  const Locked lock;
  const auto qp = find<Qp>(queue);
  const auto srq = find<Srq>(queue);
  if (!qp && !srq)
    return;
  const Object &object = qp ? static_cast<const Object &>(*qp) : *srq;
  const std::uint32_t max_sge = qp ? qp->cap.max_recv_sge : srq->max_sge;
  const Site site = Site::here();
  if (qp) {
    if (qp->state == IBV_QPS_RESET)
      report(rules::wrong_state, "ibv_post_recv in state RESET", qp->name, qp->history());
    if ((qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS) && !qp->received_before_rtr &&
        rnr_naks(qp->context) > qp->rnr_at_rtr)
      report(rules::late_receive,
             "the first receive of " + qp->name +
                 " comes after RTR, and the device has sent RNR since",
             qp->name, qp->history());
    qp->received_before_rtr = true;
  }
  for (const Request &request : requests) {
    Posted posted{.wr_id = request.wr_id, .what = "receive", .receive = true, .site = site};
    if (request.sges > static_cast<int>(max_sge))
      report(rules::too_many_sges,
             print("receive wr_id %llu has %d elements, %s takes %u",
                   static_cast<unsigned long long>(request.wr_id), request.sges,
                   object.name.c_str(), max_sge),
             object.name, object.history());
    take_ranges(object, qp ? qp->pd : srq->pd, request, true, posted);
    if (protects())
      for (Range &range : posted.ranges)
        protect(range);
    (qp ? qp->receives : srq->receives).push_back(std::move(posted));
  }
  if (qp)
    note_pending(qp->recv_cq, requests.size());
}

void failed_to_receive(const void *queue, std::size_t refused, int error) {
  const Locked lock;
  const auto qp = find<Qp>(queue);
  const auto srq = find<Srq>(queue);
  if (!qp && !srq)
    return;
  auto &receives = qp ? qp->receives : srq->receives;
  for (; refused && !receives.empty(); --refused) {
    for (Range &range : receives.back().ranges)
      unprotect(range);
    receives.pop_back();
    if (qp)
      note_taken(qp->recv_cq);
  }
  if (error == ENOMEM && qp && receives.size() + 1 >= qp->cap.max_recv_wr)
    report(rules::queue_full,
           print("%zu receives are posted to %s, which has room for %u", receives.size(),
                 qp->name.c_str(), qp->cap.max_recv_wr),
           qp->name, qp->history());
}

void completed(const void *cq, std::uint64_t wr_id, ibv_wc_status status, ibv_wc_opcode opcode,
               std::uint32_t qp_num) {
  const Locked lock;
  const auto its = find<Cq>(cq);
  const auto qp = its ? queue_pair(its->context, qp_num) : nullptr;
  if (!qp)
    return;
  const bool worked = status == IBV_WC_SUCCESS;
  bool receive = worked ? opcode & IBV_WC_RECV : is_receive_error(status);
  if (!worked && !receive && !is_send_error(status)) // the status does not tell
    receive = qp->send_cq != cq || with_id(qp->sends, wr_id) == qp->sends.end();
  std::vector<Posted> taken = receive ? take_receive(*qp, wr_id) : take_sends(*qp, wr_id, !worked);
  if (receive) {
    ++qp->taken;
    if (!qp->srq && !taken.empty())
      note_taken(qp->recv_cq);
  } else {
    for (const Posted &posted : taken)
      if (posted.signaled)
        note_taken(qp->send_cq);
  }
  for (Posted &posted : taken)
    finish(qp.get(), posted, worked);
  if (worked || status == IBV_WC_WR_FLUSH_ERR)
    return;
  qp->failed = true;
  qp->failed_at = Site::here();
  // SoftRoCE reports a receive that is too small as a local operation error.
  if (receive && status == IBV_WC_LOC_QP_OP_ERR)
    status = IBV_WC_LOC_LEN_ERR;
  for (const Meaning &meaning : meanings)
    if (meaning.status == status) {
      qp->failure = meaning.rule.name;
      History history = qp->history();
      if (!taken.empty())
        history.emplace_back("posted", taken.back().site);
      report(meaning.rule,
             taken.empty()
                 ? print("%s, wr_id %llu", qp->name.c_str(), static_cast<unsigned long long>(wr_id))
                 : words(*qp, taken.back()),
             qp->name, history);
    }
}

void polled(const void *cq) {
  const Locked lock;
  if (const auto its = find<Cq>(cq)) {
    its->event_unpolled = its->armed_unpolled = its->armed_late = false;
  }
}

void armed(const void *cq) {
  const Locked lock;
  const auto its = find<Cq>(cq);
  if (!its)
    return;
  bool may_have_completed = false;
  for (const auto &[address, qp] : all<Qp>())
    may_have_completed |= (qp->send_cq == cq && qp->state >= IBV_QPS_RTS && !qp->sends.empty()) ||
                          (qp->recv_cq == cq && qp->state >= IBV_QPS_RTR && !qp->receives.empty());
  its->armed_late = may_have_completed;
  its->armed_unpolled = its->event_unpolled; // it is a mistake if the program waits now
  its->armed_at = Site::here();
}

namespace {

// The program waits for an event, or has got one, on this CQ.
void look_at_waiting(Cq &cq) {
  if (cq.armed_late)
    report(rules::no_poll_after_arm, "waiting for an event of " + cq.name, cq.name,
           {{"made", cq.made}, {"armed", cq.armed_at}});
  if (cq.armed_unpolled)
    report(rules::cq_not_polled, "an event of " + cq.name + " was taken, and it was not polled",
           cq.name, cq.history());
  cq.armed_late = cq.armed_unpolled = false;
}

} // namespace

// A call that does not block may be one of several that take all events: got_event() sees more.
void will_wait(const ibv_comp_channel *channel) {
  if (fcntl(channel->fd, F_GETFL) & O_NONBLOCK)
    return;
  const Locked lock;
  for (const auto &[address, cq] : all<Cq>())
    if (cq->channel == channel)
      look_at_waiting(*cq);
}

void got_event(const void *cq) {
  const Locked lock;
  if (const auto its = find<Cq>(cq)) {
    look_at_waiting(*its);
    its->events.take();
    its->event_unpolled = true;
  }
}

std::uint32_t only_qp(const void *cq) {
  const Locked lock;
  std::uint32_t number = 0;
  for (const auto &[address, qp] : all<Qp>())
    if (qp->send_cq == cq || qp->recv_cq == cq) {
      if (number)
        return 0;
      number = qp->number;
    }
  return number;
}

void made_cq(ibv_cq *cq, ibv_comp_channel *channel) {
  const Locked lock;
  Cq &its = add<Cq>(cq, "cq", cq->context);
  its.channel = channel;
  its.room = cq->cqe;
}

void made_srq(ibv_srq *srq, ibv_pd *pd, std::uint32_t max_sge) {
  const Locked lock;
  Srq &its = add<Srq>(srq, "srq", srq->context);
  its.pd = pd;
  its.max_sge = max_sge;
}

void made_qp(ibv_qp *qp, const ibv_qp_cap &cap, bool all_signaled) {
  const Locked lock;
  Qp &its = add<Qp>(qp, "qp", qp->context);
  its.name = print("qp 0x%x", qp->qp_num);
  its.qp = qp;
  its.number = qp->qp_num;
  its.type = qp->qp_type;
  its.pd = qp->pd;
  its.send_cq = qp->send_cq;
  its.recv_cq = qp->recv_cq;
  its.srq = qp->srq;
  its.received_before_rtr = qp->srq;
  its.all_signaled = all_signaled;
  its.cap = cap;
  its.internal = false; // librdmacm makes queue pairs for the program
  index(find<Qp>(qp));
}

} // namespace lint

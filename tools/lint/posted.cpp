// SPDX-License-Identifier: MIT
// Posted requests, completions and events: the rules of the queues, and those of the memory that
// requests use.

#include "tracked.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
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

// Returns true if the rkey of such a request is one of the peer's.
bool is_remote(ibv_wr_opcode opcode) {
  return !is_send(opcode) && opcode != IBV_WR_BIND_MW && opcode != IBV_WR_LOCAL_INV;
}

// Returns true if the NIC writes to the local memory of such a request.
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

// With these, memory may change at any time.
constexpr unsigned written_by_peers =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

// A WRITE of one word may send a counter that goes on counting.
bool is_counter(const Request &request) {
  return request.opcode == IBV_WR_RDMA_WRITE && request.sges.size() == 1 &&
         request.sges[0].length <= 8;
}

std::uint64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

// The region of another context that has the element's lkey and memory.
std::shared_ptr<Mr> foreign_region(const ibv_sge &sge) {
  for (const auto &[address, mr] : all<Mr>())
    if (mr->lkey == sge.lkey && sge.addr >= mr->base && sge.addr - mr->base < mr->length)
      return mr;
  return nullptr;
}

// Looks at the memory of a request and adds it to `posted`. Under the lock.
//
// @param target whether the NIC writes to it
void take_ranges(const Object &queue, const void *pd, const Request &request, bool target,
                 Posted &posted) {
  for (const ibv_sge &sge : request.sges) {
    posted.length += sge.length;
    if (!sge.length)
      continue;
    const auto what = [&] {
      return print("%s wr_id %llu: %llu B at 0x%llx, lkey 0x%x", posted.what,
                   static_cast<unsigned long long>(request.wr_id),
                   static_cast<unsigned long long>(sge.length),
                   static_cast<unsigned long long>(sge.addr), sge.lkey);
    };
    const auto mr = region(queue.context, sge.lkey);
    if (!mr) {
      posted.suspect = true;
      if (const auto other = foreign_region(sge))
        report(rules::other_context, what() + ": " + other->name + " is of another context",
               other->name, other->history());
      else
        report(rules::unknown_lkey, what(), queue.name, queue.history());
      continue;
    }
    if (mr->pd != pd && find<Pd>(pd)) { // and not a parent domain, which holds another PD
      posted.suspect = true;
      report(rules::other_pd, what() + ": " + mr->name + " is of another PD", mr->name,
             mr->history());
    }
    if (sge.addr < mr->base || sge.addr - mr->base > mr->length ||
        mr->length - (sge.addr - mr->base) < sge.length) {
      posted.suspect = true;
      report(rules::outside_region,
             what() + print(": %s has %llu B from 0x%llx", mr->name.c_str(),
                            static_cast<unsigned long long>(mr->length),
                            static_cast<unsigned long long>(mr->base)),
             mr->name, mr->history());
      continue;
    }
    if (target && !(mr->access & IBV_ACCESS_LOCAL_WRITE))
      report(rules::no_local_write, what(), mr->name, mr->history());
    if (target && request.opcode == IBV_WR_RDMA_READ && is_iwarp(queue.context)) {
      if (mr->access & IBV_ACCESS_REMOTE_WRITE)
        used_access()[mr->rkey] |= IBV_ACCESS_REMOTE_WRITE; // by the answer
      else
        report(rules::no_remote_write, what(), mr->name, mr->history());
    }
    Range range{.mr = mr, .length = sge.length};
    if (mr->memory) {
      const std::uint64_t offset = sge.addr - mr->base;
      range.memory = mr->memory + offset;
      if (target) {
        mr->target_low = std::min(mr->target_low, offset);
        mr->target_high = std::max(mr->target_high, offset + sge.length);
      } else if (!(mr->access & written_by_peers) && !is_counter(request) &&
                 (offset >= mr->target_high || offset + sge.length <= mr->target_low)) {
        // Neither a peer nor a receive changes it.
        if (const auto sum = checksum(range.memory, range.length)) {
          range.checked = true;
          range.checksum = *sum;
        }
      }
    }
    posted.ranges.push_back(std::move(range));
  }
}

bool has_bound = false; // a memory window; without any, no SEND is searched. Under the lock.

// Returns true if the payload of a SEND names this rkey, in either byte order.
bool names_key(const Request &request, std::uint32_t rkey, const ibv_context *context) {
  for (const ibv_sge &sge : request.sges) {
    const auto *from = reinterpret_cast<const char *>(sge.addr);
    if (!(request.flags & IBV_SEND_INLINE)) {
      const auto mr = region(context, sge.lkey);
      if (!mr || !mr->memory || sge.addr < mr->base ||
          sge.addr - mr->base + sge.length > mr->length)
        continue;
      from = mr->memory + (sge.addr - mr->base);
    }
    char bytes[512];
    const std::size_t length =
        read_memory(from, bytes, std::min<std::uint64_t>(sge.length, sizeof bytes));
    for (std::size_t at = 0; at + 4 <= length; ++at) {
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
void find_early_keys(const Qp &qp, const Request &request) {
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

void note_taken(const void *queue, std::uint64_t count = 1) {
  if (const auto cq = find<Cq>(queue))
    cq->pending -= std::min(cq->pending, count);
}

// The end of one posted request. Under the lock.
void finish(const Qp &qp, Posted &posted, bool worked) {
  for (Range &range : posted.ranges) {
    unprotect(range);
    const auto mr = range.mr.lock();
    if (!worked || !range.checked || !mr || !mr->live)
      continue;
    const auto offset = static_cast<std::uint64_t>(range.memory - mr->memory);
    if (offset < mr->target_high && offset + range.length > mr->target_low)
      continue; // a receive was posted into it meanwhile
    const auto sum = checksum(range.memory, range.length);
    if (sum && *sum != range.checksum)
      report(rules::buffer_changed,
             "the buffer of " + words(qp, posted) + " changed before the completion", mr->name,
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

bool is_send_error(ibv_wc_status status) {
  return status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR ||
         status == IBV_WC_REM_OP_ERR || status == IBV_WC_RETRY_EXC_ERR ||
         status == IBV_WC_RNR_RETRY_EXC_ERR || status == IBV_WC_MW_BIND_ERR;
}

auto with_id(std::deque<Posted> &posted, std::uint64_t wr_id) {
  return std::find_if(posted.begin(), posted.end(),
                      [&](const Posted &one) { return one.wr_id == wr_id; });
}

bool holds(const std::deque<Posted> &posted, std::uint64_t wr_id) {
  return std::any_of(posted.begin(), posted.end(),
                     [&](const Posted &one) { return one.wr_id == wr_id; });
}

const std::deque<Posted> &receives_of(const Qp &qp) {
  const auto srq = find<Srq>(qp.srq);
  return srq ? srq->receives : qp.receives;
}

// Returns true if a completion with an error, which has no opcode, is that of a receive.
bool is_receive(const Qp &qp, const void *cq, std::uint64_t wr_id, ibv_wc_status status) {
  if (qp.send_cq != qp.recv_cq)
    return qp.recv_cq == cq;
  const bool sent = holds(qp.sends, wr_id), received = holds(receives_of(qp), wr_id);
  if (sent != received)
    return received;
  if (std::any_of(qp.sends.begin(), qp.sends.end(),
                  [&](const Posted &one) { return one.wr_id == wr_id && one.suspect; }))
    return false;
  return status == IBV_WC_LOC_LEN_ERR || !is_send_error(status);
}

// The queue pair that this completion is of; null if that is not clear.
std::shared_ptr<Qp> owner(const Cq &cq, const void *address, std::uint64_t wr_id,
                          std::uint32_t number) {
  if (number)
    return queue_pair(cq.context, number);
  std::shared_ptr<Qp> found;
  std::vector<std::shared_ptr<Qp>> all_of;
  for (const auto &[at, qp] : all<Qp>()) {
    if (qp->send_cq != address && qp->recv_cq != address)
      continue;
    all_of.push_back(qp);
    if ((qp->send_cq == address && holds(qp->sends, wr_id)) ||
        (qp->recv_cq == address && holds(receives_of(*qp), wr_id))) {
      if (found) { // from now on, nobody knows what is posted to them
        for (const auto &one : all_of) {
          one->accounted = false;
          forget_posted(*one);
        }
        found->accounted = false;
        return nullptr;
      }
      found = qp;
    }
  }
  return found;
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

// @param wanted requests that should be outstanding at once
void check_room(const Qp &qp, std::size_t wanted) {
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

std::uint64_t will_send(ibv_qp *queue, const std::vector<Request> &requests) {
  const Locked lock;
  static std::uint64_t batches = 0;
  const auto qp = find<Qp>(queue);
  if (!qp || requests.empty() || !qp->accounted)
    return 0;
  ++batches;
  const Site site = Site::here();
  if ((qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR) &&
      !is_iwarp(queue->context))
    report(rules::wrong_state,
           print("ibv_post_send in state %s", qp->state == IBV_QPS_RESET  ? "RESET"
                                              : qp->state == IBV_QPS_INIT ? "INIT"
                                                                          : "RTR"),
           qp->name, qp->history());
  // Another thread may have taken the completion just now.
  if (qp->failed == thread_id() && qp->state == IBV_QPS_RTS)
    report(rules::status_ignored,
           print("ibv_post_send after a completion with status \"%s\"", qp->failure), qp->name,
           {{"made", qp->made}, {"failed", qp->failed_at}});
  std::uint64_t signaled = 0;
  const std::uint64_t now = now_ms();
  for (const Request &request : requests) {
    Posted posted{.wr_id = request.wr_id, .what = word(request.opcode), .site = site};
    posted.signaled = qp->all_signaled || request.flags & IBV_SEND_SIGNALED;
    posted.binds = request.opcode == IBV_WR_BIND_MW ? request.rkey : 0;
    posted.batch = batches;
    posted.reads = is_target(request.opcode);
    posted.ah = request.ah;
    if (const auto ah = find<Ah>(request.ah); ah && ah->live && ah->context != qp->context)
      report(rules::other_context,
             print("%s wr_id %llu: %s is of another context than %s", posted.what,
                   static_cast<unsigned long long>(request.wr_id), ah->name.c_str(),
                   qp->name.c_str()),
             ah->name, ah->history());
    posted.since = now;
    if (request.sge_count > static_cast<int>(qp->cap.max_send_sge))
      report(rules::too_many_sges,
             print("%s wr_id %llu has %d elements, %s takes %u", posted.what,
                   static_cast<unsigned long long>(request.wr_id), request.sge_count,
                   qp->name.c_str(), qp->cap.max_send_sge),
             qp->name, qp->history());
    if (request.flags & IBV_SEND_INLINE) {
      for (const ibv_sge &sge : request.sges)
        posted.length += sge.length;
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
    if (qp->type == IBV_QPT_UD)
      note_datagram(*qp, request, site);
    if (request.rkey && is_remote(request.opcode))
      used_access()[request.rkey] |= access_of(request.opcode);
    has_bound |= posted.binds != 0;
    if (has_bound && is_send(request.opcode))
      find_early_keys(*qp, request);
    signaled += posted.signaled;
    qp->sends.push_back(std::move(posted));
  }
  note_pending(qp->send_cq, signaled);
  const auto reads = std::count_if(qp->sends.begin(), qp->sends.end(),
                                   [](const Posted &one) { return one.reads; });
  if (reads > 1 && qp->attr.max_rd_atomic == 1)
    report(rules::one_read,
           print("%td READs or atomics are posted to %s, whose max_rd_atomic is 1", reads,
                 qp->name.c_str()),
           qp->name, qp->history());
  // An answer to this request cannot have come before.
  if (const auto cq = find<Cq>(qp->recv_cq))
    cq->armed_late = false;
  return batches;
}

namespace {

// Takes the last `refused` requests of a batch out again. @return how many of them were signaled
std::uint64_t take_back(std::deque<Posted> &posted, std::uint64_t batch, std::size_t refused) {
  std::uint64_t signaled = 0;
  for (auto at = posted.end(); refused && at != posted.begin();) {
    --at;
    if (at->batch != batch)
      continue;
    for (Range &range : at->ranges)
      unprotect(range);
    signaled += at->signaled;
    at = posted.erase(at);
    --refused;
  }
  return signaled;
}

} // namespace

void did_send(ibv_qp *queue, std::uint64_t batch, std::size_t refused, int error) {
  const Locked lock;
  const auto qp = find<Qp>(queue);
  if (!qp || !qp->accounted)
    return;
  note_taken(qp->send_cq, take_back(qp->sends, batch, refused));
  const auto cq = find<Cq>(qp->send_cq);
  // SoftRoCE frees the place of a request when it is done; other NICs when its completion is taken.
  if (error == ENOMEM)
    check_room(*qp, qp->sends.size() + 1);
  else if (!error && (!cq || cq->threads.empty())) // no thread takes completions just now
    check_room(*qp, qp->sends.size());
}

std::uint64_t will_receive(const void *queue, const std::vector<Request> &requests) {
  const Locked lock;
  static std::uint64_t batches = 0;
  const auto qp = find<Qp>(queue);
  const auto srq = find<Srq>(queue);
  if ((!qp && !srq) || (qp && !qp->accounted))
    return 0;
  ++batches;
  const Object &object = qp ? static_cast<const Object &>(*qp) : *srq;
  const std::uint32_t max_sge = qp ? qp->cap.max_recv_sge : srq->max_sge;
  const Site site = Site::here();
  if (qp) {
    if (qp->state == IBV_QPS_RESET)
      report(rules::wrong_state, "ibv_post_recv in state RESET", qp->name, qp->history());
    if ((qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS) && !qp->has_receives &&
        rnr_naks(qp->context) > qp->rnr_at_rtr)
      report(rules::late_receive,
             "the first receive of " + qp->name +
                 " comes after RTR, and the device has sent RNR since",
             qp->name, qp->history());
    qp->has_receives = true;
  }
  for (const Request &request : requests) {
    Posted posted{.wr_id = request.wr_id, .what = "receive", .batch = batches, .site = site};
    if (request.sge_count > static_cast<int>(max_sge))
      report(rules::too_many_sges,
             print("receive wr_id %llu has %d elements, %s takes %u",
                   static_cast<unsigned long long>(request.wr_id), request.sge_count,
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
  return batches;
}

void did_receive(const void *queue, std::uint64_t batch, std::size_t refused, int error) {
  if (!error)
    return;
  const Locked lock;
  const auto qp = find<Qp>(queue);
  const auto srq = find<Srq>(queue);
  if (!qp && !srq)
    return;
  auto &receives = qp ? qp->receives : srq->receives;
  const std::uint64_t taken = take_back(receives, batch, refused);
  if (!qp)
    return;
  note_taken(qp->recv_cq, taken);
  if (error == ENOMEM && receives.size() >= qp->cap.max_recv_wr)
    report(rules::queue_full,
           print("%zu receives are posted to %s, which has room for %u", receives.size(),
                 qp->name.c_str(), qp->cap.max_recv_wr),
           qp->name, qp->history());
}

void forget_posted(Qp &qp) {
  const auto signaled = static_cast<std::uint64_t>(std::count_if(
      qp.sends.begin(), qp.sends.end(), [](const Posted &one) { return one.signaled; }));
  note_taken(qp.send_cq, signaled);
  note_taken(qp.recv_cq, qp.receives.size());
  for (auto *posted : {&qp.sends, &qp.receives}) {
    for (Posted &one : *posted)
      for (Range &range : one.ranges)
        unprotect(range);
    posted->clear();
  }
}

namespace {

// Looks for a request that waited long after an RNR NAK. Shorter waits do no harm that is seen.
//
// The peer's min_rnr_timer is known if the peer is in this process. If not, few NAKs in a long time
// show that it is long. The device counts the NAKs of all its queue pairs, so they may hide it.
void check_time(const Qp &qp, const Posted &posted) {
  constexpr std::uint64_t long_ms = 300;
  const std::uint64_t took = now_ms() - posted.since;
  if (took < long_ms || qp.type != IBV_QPT_RC)
    return;
  const std::uint64_t naks = rnr_naks_received(qp.context) - qp.rnr_got_at_rtr;
  bool waits_long = naks && took / naks >= long_ms;
  for (const auto &[address, peer] : all<Qp>())
    if (peer->number == qp.attr.dest_qp_num && peer->context->device == qp.context->device)
      waits_long = naks && (peer->attr.min_rnr_timer == 0 || peer->attr.min_rnr_timer >= 30);
  if (!waits_long)
    return;
  report(rules::rnr_long,
         words(qp, posted) + print(" took %llu ms, and the device has received RNR NAKs",
                                   static_cast<unsigned long long>(took)),
         qp.name, {{"made", qp.made}, {"posted", posted.site}});
}

void find_destroyed(const Cq &cq, std::uint64_t wr_id, std::uint32_t number) {
  const auto is_it = [&](const std::shared_ptr<Object> &object) {
    const auto *qp = dynamic_cast<const Qp *>(object.get());
    return qp && qp->number == number && qp->context == cq.context;
  };
  const auto found = std::find_if(destroyed().rbegin(), destroyed().rend(), is_it);
  if (found != destroyed().rend())
    report(rules::completion_of_destroyed,
           print("wr_id %llu of ", static_cast<unsigned long long>(wr_id)) + (*found)->name,
           (*found)->name, (*found)->history());
}

// A program that looks for completions after the end of the only queue pair waits for those of its
// requests.
void find_lost(Cq &cq, const void *address) {
  const auto qp = cq.lost.lock();
  cq.lost.reset();
  if (!qp)
    return;
  for (const auto &[at, other] : all<Qp>())
    if (other->send_cq == address || other->recv_cq == address)
      return;
  report(rules::destroyed_with_posts,
         print("%zu requests were posted to %s when it was destroyed, and the program polls %s",
               qp->left, qp->name.c_str(), cq.name.c_str()),
         qp->name, qp->history());
}

} // namespace

void completed(const void *cq, std::uint64_t wr_id, ibv_wc_status status, ibv_wc_opcode opcode,
               std::uint32_t qp_num) {
  const Locked lock;
  const auto its = find<Cq>(cq);
  const auto qp = its ? owner(*its, cq, wr_id, qp_num) : nullptr;
  if (its && !qp)
    find_destroyed(*its, wr_id, qp_num);
  if (!qp || !qp->accounted)
    return;
  const bool worked = status == IBV_WC_SUCCESS;
  const bool receive = worked ? opcode & IBV_WC_RECV : is_receive(*qp, cq, wr_id, status);
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
    finish(*qp, posted, worked);
  if (worked && !receive && !taken.empty())
    check_time(*qp, taken.back());
  if (worked || status == IBV_WC_WR_FLUSH_ERR)
    return;
  qp->failed = thread_id();
  qp->failed_at = Site::here();
  // SoftRoCE reports a receive that is too small as a local operation error.
  if (receive && status == IBV_WC_LOC_QP_OP_ERR)
    status = IBV_WC_LOC_LEN_ERR;
  check_gid(*qp);
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

void polled(const void *cq, int entries, int count) {
  report_faults();
  const Locked lock;
  if (const auto its = find<Cq>(cq)) {
    its->last_poller = thread_id();
    its->event_unpolled = its->armed_unpolled = its->armed_late = false;
    its->full_batch = entries > 1 && count == entries;
    if (!count && !its->lost.expired())
      find_lost(*its, cq);
  }
  check_groups(cq);
}

void armed(const void *cq, bool solicited_only) {
  const Locked lock;
  const auto its = find<Cq>(cq);
  if (!its)
    return;
  bool may_have_completed = false;
  for (const auto &[address, qp] : all<Qp>())
    may_have_completed |= (qp->send_cq == cq && qp->state >= IBV_QPS_RTS && !qp->sends.empty()) ||
                          (qp->recv_cq == cq && qp->state >= IBV_QPS_RTR && !qp->receives.empty());
  its->armed_late = may_have_completed;
  its->armed_solicited = solicited_only;
  its->armed_unpolled = its->event_unpolled; // it is a mistake if the program waits now
  its->armed_at = Site::here();
}

namespace {

// Another thread may poll this CQ when it gets to it.
bool is_polled_elsewhere(const Cq &cq) {
  return cq.last_poller && cq.last_poller != thread_id();
}

void check_arming(Cq &cq) {
  if (cq.armed_late && !is_polled_elsewhere(cq))
    report(rules::no_poll_after_arm, "waiting for an event of " + cq.name, cq.name,
           {{"made", cq.made}, {"armed", cq.armed_at}});
  cq.armed_late = false;
}

// One more completion than the program has taken may be there if one more request is posted.
void check_batch(Cq &cq) {
  if (cq.full_batch && cq.pending > 0 && !is_polled_elsewhere(cq))
    report(rules::full_batch,
           "waiting for an event of " + cq.name +
               print(", where %llu more requests may have completed",
                     static_cast<unsigned long long>(cq.pending)),
           cq.name, {{"made", cq.made}, {"armed", cq.armed_at}});
  cq.full_batch = false;
}

} // namespace

void will_wait_on(const void *channel) {
  for (const auto &[address, cq] : all<Cq>())
    if (cq->channel == channel) {
      check_arming(*cq);
      check_batch(*cq);
    }
}

// A call that does not block may be one of several that take all events: got_event() sees more.
void will_wait(const ibv_comp_channel *channel) {
  if (fcntl(channel->fd, F_GETFL) & O_NONBLOCK)
    return;
  const Locked lock;
  will_wait_on(channel);
}

void got_event(const void *cq) {
  const Locked lock;
  const auto its = find<Cq>(cq);
  if (!its)
    return;
  check_arming(*its);
  if (its->armed_unpolled && !is_polled_elsewhere(*its))
    report(rules::cq_not_polled, "an event of " + its->name + " was taken, and it was not polled",
           its->name, its->history());
  its->armed_unpolled = its->armed_solicited = false;
  its->events.take();
  its->event_unpolled = true;
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
  its.number = qp->qp_num;
  its.type = qp->qp_type;
  its.pd = qp->pd;
  its.send_cq = qp->send_cq;
  its.recv_cq = qp->recv_cq;
  its.srq = qp->srq;
  its.has_receives = qp->srq;
  its.accounted = qp->qp_type != IBV_QPT_XRC_RECV && qp->qp_type != IBV_QPT_XRC_SEND;
  its.all_signaled = all_signaled;
  its.cap = cap;
  its.internal = false; // librdmacm makes queue pairs for the program
  index(find<Qp>(qp));
}

} // namespace lint

// SPDX-License-Identifier: MIT
// The extended interfaces: work requests built by ibv_wr_*(), and completions read in place by
// ibv_start_poll(). Their pointers are in each QP and CQ.

#include "../trace/next.hpp"
#include "tracked.hpp"

#include <cerrno>
#include <map>

namespace lint {
namespace {

struct Builder {
  ibv_qp_ex original{};
  std::vector<Request> requests; // since wr_start
  pid_t thread = 0;              // that called wr_start
};

struct ExtendedCq {
  decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
  decltype(ibv_cq_ex::next_poll) next_poll = nullptr;
  decltype(ibv_cq_ex::end_poll) end_poll = nullptr;
  std::uint64_t wc_flags = 0;
};

template <typename T> T &kept(const void *object) {
  static auto &all = *new std::map<const void *, T>;
  const Locked lock;
  return all[object];
}

Builder &builder(const ibv_qp_ex *qp) {
  return kept<Builder>(qp);
}

// Begins a work request. @return the provider's functions
const ibv_qp_ex &begin(const ibv_qp_ex *qp, Request request) {
  Builder &its = builder(qp);
  request.wr_id = qp->wr_id;
  request.flags = qp->wr_flags;
  its.requests.push_back(std::move(request));
  return its.original;
}

// Adds to the last one. @return the provider's functions
template <typename Change> const ibv_qp_ex &change(const ibv_qp_ex *qp, Change change) {
  Builder &its = builder(qp);
  if (!its.requests.empty())
    change(its.requests.back());
  return its.original;
}

// ---- each begins a work request

void wr_send(ibv_qp_ex *qp) {
  begin(qp, {.opcode = IBV_WR_SEND}).wr_send(qp);
}
void wr_send_imm(ibv_qp_ex *qp, __be32 imm) {
  begin(qp, {.opcode = IBV_WR_SEND_WITH_IMM}).wr_send_imm(qp, imm);
}
void wr_send_inv(ibv_qp_ex *qp, std::uint32_t rkey) {
  begin(qp, {.opcode = IBV_WR_SEND_WITH_INV}).wr_send_inv(qp, rkey);
}
void wr_rdma_read(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address) {
  begin(qp, {.opcode = IBV_WR_RDMA_READ, .rkey = rkey}).wr_rdma_read(qp, rkey, address);
}
void wr_rdma_write(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address) {
  begin(qp, {.opcode = IBV_WR_RDMA_WRITE, .rkey = rkey}).wr_rdma_write(qp, rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address, __be32 imm) {
  begin(qp, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .rkey = rkey})
      .wr_rdma_write_imm(qp, rkey, address, imm);
}
void wr_atomic_cmp_swp(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address,
                       std::uint64_t compare, std::uint64_t swap) {
  begin(qp, {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .rkey = rkey})
      .wr_atomic_cmp_swp(qp, rkey, address, compare, swap);
}
void wr_atomic_fetch_add(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address,
                         std::uint64_t add) {
  begin(qp, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .rkey = rkey})
      .wr_atomic_fetch_add(qp, rkey, address, add);
}
#ifdef HAVE_WR_ATOMIC_WRITE
void wr_atomic_write(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address, const void *value) {
  begin(qp, {.opcode = IBV_WR_ATOMIC_WRITE, .rkey = rkey})
      .wr_atomic_write(qp, rkey, address, value);
}
#endif
#ifdef HAVE_WR_FLUSH
void wr_flush(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address, std::size_t length,
              std::uint8_t type, std::uint8_t level) {
  begin(qp, {.opcode = IBV_WR_FLUSH, .rkey = rkey})
      .wr_flush(qp, rkey, address, length, type, level);
}
#endif
void wr_send_tso(ibv_qp_ex *qp, void *header, std::uint16_t header_size, std::uint16_t mss) {
  begin(qp, {.opcode = IBV_WR_TSO}).wr_send_tso(qp, header, header_size, mss);
}
void wr_local_inv(ibv_qp_ex *qp, std::uint32_t rkey) {
  begin(qp, {.opcode = IBV_WR_LOCAL_INV}).wr_local_inv(qp, rkey);
}
void wr_bind_mw(ibv_qp_ex *qp, ibv_mw *mw, std::uint32_t rkey, const ibv_mw_bind_info *info) {
  begin(qp, {.opcode = IBV_WR_BIND_MW, .binds = rkey}).wr_bind_mw(qp, mw, rkey, info);
}

// ---- each adds to the last one

void wr_set_sge(ibv_qp_ex *qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  change(qp, [&](Request &request) {
    request.sges = 1;
    request.pieces = {{address, length, lkey}};
  }).wr_set_sge(qp, lkey, address, length);
}
void wr_set_sge_list(ibv_qp_ex *qp, std::size_t count, const ibv_sge *list) {
  change(qp, [&](Request &request) {
    request.sges = static_cast<int>(count);
    for (std::size_t i = 0; i < count; ++i)
      request.pieces.push_back({list[i].addr, list[i].length, list[i].lkey});
  }).wr_set_sge_list(qp, count, list);
}
void wr_set_inline_data(ibv_qp_ex *qp, void *address, std::size_t length) {
  change(qp, [&](Request &request) {
    request.flags |= IBV_SEND_INLINE;
    request.pieces = {{reinterpret_cast<std::uintptr_t>(address), length, 0}};
  }).wr_set_inline_data(qp, address, length);
}
void wr_set_inline_data_list(ibv_qp_ex *qp, std::size_t count, const ibv_data_buf *list) {
  change(qp, [&](Request &request) {
    request.flags |= IBV_SEND_INLINE;
    for (std::size_t i = 0; i < count; ++i)
      request.pieces.push_back({reinterpret_cast<std::uintptr_t>(list[i].addr), list[i].length, 0});
  }).wr_set_inline_data_list(qp, count, list);
}
void wr_set_ud_addr(ibv_qp_ex *qp, ibv_ah *ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) {
  change(qp, [&](Request &request) {
    request.to = remote_qpn;
    request.qkey = remote_qkey;
  }).wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey);
}

// ---- the bracket around them

void wr_start(ibv_qp_ex *qp) {
  Builder &its = builder(qp);
  its.original.wr_start(qp); // takes the provider's lock on the QP
  its.requests.clear();
  its.thread = thread_id();
}

void check_thread(const char *call, pid_t owner, const void *object) {
  if (!owner || owner == thread_id())
    return;
  const Locked lock;
  if (const auto its = objects().find(object); its != objects().end())
    report(rules::two_threads,
           print("%s in thread %d, but thread %d began the section", call, thread_id(), owner),
           its->second->name, its->second->history());
}

int wr_complete(ibv_qp_ex *qp) {
  Builder &its = builder(qp);
  const Use use("ibv_wr_complete", &qp->qp_base);
  if (use.refused())
    return EINVAL;
  check_thread("ibv_wr_complete", its.thread, &qp->qp_base);
  const std::vector<Request> requests = its.requests; // its lock is given back by the call
  const std::uint64_t batch = will_send(&qp->qp_base, requests);
  const int error = its.original.wr_complete(qp);
  did_send(&qp->qp_base, batch, error ? requests.size() : 0, error); // all or nothing
  return error;
}

// ---- completions read in place

void take(ibv_cq_ex *cq, const ExtendedCq &its) {
  const ibv_cq *base = ibv_cq_ex_to_cq(cq);
  const std::uint32_t number = its.wc_flags & IBV_WC_EX_WITH_QP_NUM ? cq->read_qp_num(cq) : 0;
  completed(base, cq->wr_id, cq->status,
            cq->status == IBV_WC_SUCCESS ? cq->read_opcode(cq) : IBV_WC_SEND, number);
}

void set_poller(const void *cq, pid_t thread) {
  const Locked lock;
  if (const auto its = find<Cq>(cq))
    its->poller = thread;
}

int start_poll(ibv_cq_ex *cq, ibv_poll_cq_attr *attr) {
  const ExtendedCq &its = kept<ExtendedCq>(cq);
  const Use use("ibv_start_poll", cq);
  if (use.refused())
    return EINVAL;
  const int error = its.start_poll(cq, attr);
  polled(cq);
  if (!error) {
    set_poller(cq, thread_id());
    take(cq, its);
  }
  return error;
}

int next_poll(ibv_cq_ex *cq) {
  const ExtendedCq &its = kept<ExtendedCq>(cq);
  const int error = its.next_poll(cq);
  if (!error)
    take(cq, its);
  return error;
}

void end_poll(ibv_cq_ex *cq) {
  pid_t poller = 0;
  {
    const Locked lock;
    if (const auto its = find<Cq>(cq))
      poller = its->poller;
  }
  check_thread("ibv_end_poll", poller, cq);
  set_poller(cq, 0);
  kept<ExtendedCq>(cq).end_poll(cq);
}

} // namespace

void watch_builders(ibv_qp *qp) {
  static const auto extended = REAL(ibv_qp_to_qp_ex);
  ibv_qp_ex *its = extended(qp);
  if (!its)
    return;
  Builder &kept_of = builder(its);
  kept_of = {};
  kept_of.original = *its;
// A pointer that is not set is an operation that this QP was not made with.
#define REPLACE(operation)                                                                         \
  if (its->operation)                                                                              \
    its->operation = operation;
  REPLACE(wr_send)
  REPLACE(wr_send_imm)
  REPLACE(wr_send_inv)
  REPLACE(wr_send_tso)
  REPLACE(wr_rdma_read)
  REPLACE(wr_rdma_write)
  REPLACE(wr_rdma_write_imm)
  REPLACE(wr_atomic_cmp_swp)
  REPLACE(wr_atomic_fetch_add)
#ifdef HAVE_WR_ATOMIC_WRITE
  REPLACE(wr_atomic_write)
#endif
#ifdef HAVE_WR_FLUSH
  REPLACE(wr_flush)
#endif
  REPLACE(wr_local_inv)
  REPLACE(wr_bind_mw)
  REPLACE(wr_set_sge)
  REPLACE(wr_set_sge_list)
  REPLACE(wr_set_inline_data)
  REPLACE(wr_set_inline_data_list)
  REPLACE(wr_set_ud_addr)
  REPLACE(wr_start)
  REPLACE(wr_complete)
#undef REPLACE
}

void watch_cq(ibv_cq_ex *cq, std::uint64_t wc_flags) {
  ExtendedCq &its = kept<ExtendedCq>(cq);
  its = {cq->start_poll, cq->next_poll, cq->end_poll, wc_flags};
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
  cq->end_poll = end_poll;
}

} // namespace lint

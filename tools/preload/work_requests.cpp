// SPDX-License-Identifier: MIT
// Reads each kind of work request. The pointers of the extended interface are in each queue
// pair.

#include "work_requests.hpp"

#include "next.hpp"
#include "object_registry.hpp"

#include <new>
#include <sys/syscall.h>
#include <unistd.h>

namespace preload {
namespace {

void add(Request &request, const ibv_sge &sge) {
  request.length += sge.length;
  request.sges.push_back(sge);
}

// Data that are set replace those that were set before.
void clear(Request &request) {
  request.length = 0;
  request.sges.clear();
}

// Only a queue pair whose functions were replaced comes here, so there is something kept of it.
Builder &builder(const ibv_qp_ex *qp) {
  return *kept<Builder>().find(qp);
}

// Begins a work request. @return the provider's functions
const ibv_qp_ex &begin(const ibv_qp_ex *qp, Request request) {
  Builder &its = builder(qp);
  request.wr_id = qp->wr_id;
  request.flags = qp->wr_flags;
  try {
    its.requests.push_back(std::move(request));
  } catch (const std::bad_alloc &) { // the program gets no exception, and we know less
    its.requests.clear();
  }
  return its.original;
}

// Says more about the last one. @return the provider's functions
template <typename Change> const ibv_qp_ex &change(const ibv_qp_ex *qp, Change change) {
  Builder &its = builder(qp);
  try {
    if (!its.requests.empty())
      change(its.requests.back());
  } catch (const std::bad_alloc &) {
    its.requests.clear();
  }
  return its.original;
}

// ---- each begins a work request

void wr_send(ibv_qp_ex *qp) {
  begin(qp, {.opcode = IBV_WR_SEND}).wr_send(qp);
}

void wr_send_imm(ibv_qp_ex *qp, __be32 imm) {
  begin(qp, {.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = imm}).wr_send_imm(qp, imm);
}

void wr_send_inv(ibv_qp_ex *qp, std::uint32_t rkey) {
  begin(qp, {.opcode = IBV_WR_SEND_WITH_INV, .rkey = rkey}).wr_send_inv(qp, rkey);
}

void wr_send_tso(ibv_qp_ex *qp, void *header, std::uint16_t header_size, std::uint16_t mss) {
  begin(qp, {.opcode = IBV_WR_TSO}).wr_send_tso(qp, header, header_size, mss);
}

void wr_rdma_read(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address) {
  begin(qp, {.opcode = IBV_WR_RDMA_READ, .remote_addr = address, .rkey = rkey})
      .wr_rdma_read(qp, rkey, address);
}

void wr_rdma_write(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address) {
  begin(qp, {.opcode = IBV_WR_RDMA_WRITE, .remote_addr = address, .rkey = rkey})
      .wr_rdma_write(qp, rkey, address);
}

void wr_rdma_write_imm(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address, __be32 imm) {
  begin(
      qp,
      {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = imm, .remote_addr = address, .rkey = rkey})
      .wr_rdma_write_imm(qp, rkey, address, imm);
}

void wr_atomic_cmp_swp(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address,
                       std::uint64_t compare, std::uint64_t swap) {
  begin(qp, {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
             .remote_addr = address,
             .rkey = rkey,
             .compare_add = compare,
             .swap = swap})
      .wr_atomic_cmp_swp(qp, rkey, address, compare, swap);
}

void wr_atomic_fetch_add(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address,
                         std::uint64_t add) {
  begin(qp, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
             .remote_addr = address,
             .rkey = rkey,
             .compare_add = add})
      .wr_atomic_fetch_add(qp, rkey, address, add);
}

#ifdef HAVE_WR_ATOMIC_WRITE
void wr_atomic_write(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address, const void *value) {
  begin(qp, {.opcode = IBV_WR_ATOMIC_WRITE, .length = 8, .remote_addr = address, .rkey = rkey})
      .wr_atomic_write(qp, rkey, address, value);
}
#endif

#ifdef HAVE_WR_FLUSH
void wr_flush(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t address, std::size_t length,
              std::uint8_t type, std::uint8_t level) {
  begin(qp, {.opcode = IBV_WR_FLUSH, .remote_addr = address, .rkey = rkey})
      .wr_flush(qp, rkey, address, length, type, level);
}
#endif

void wr_local_inv(ibv_qp_ex *qp, std::uint32_t rkey) {
  begin(qp, {.opcode = IBV_WR_LOCAL_INV, .rkey = rkey}).wr_local_inv(qp, rkey);
}

void wr_bind_mw(ibv_qp_ex *qp, ibv_mw *mw, std::uint32_t rkey, const ibv_mw_bind_info *info) {
  begin(qp, {.opcode = IBV_WR_BIND_MW, .rkey = rkey}).wr_bind_mw(qp, mw, rkey, info);
}

// ---- each adds to the last one

void wr_set_sge(ibv_qp_ex *qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  change(qp, [&](Request &request) {
    request.sge_count = 1;
    clear(request);
    add(request, {.addr = address, .length = length, .lkey = lkey});
  }).wr_set_sge(qp, lkey, address, length);
}

void wr_set_sge_list(ibv_qp_ex *qp, std::size_t count, const ibv_sge *list) {
  change(qp, [&](Request &request) {
    request.sge_count = static_cast<int>(count);
    clear(request);
    for (const ibv_sge &sge : std::span(list, count))
      add(request, sge);
  }).wr_set_sge_list(qp, count, list);
}

void add_inline(Request &request, const void *address, std::size_t length) {
  request.flags |= IBV_SEND_INLINE;
  add(request, {.addr = reinterpret_cast<std::uintptr_t>(address),
                .length = static_cast<std::uint32_t>(length),
                .lkey = 0});
}

void wr_set_inline_data(ibv_qp_ex *qp, void *address, std::size_t length) {
  change(qp, [&](Request &request) {
    clear(request);
    add_inline(request, address, length);
  }).wr_set_inline_data(qp, address, length);
}

void wr_set_inline_data_list(ibv_qp_ex *qp, std::size_t count, const ibv_data_buf *list) {
  change(qp, [&](Request &request) {
    clear(request);
    for (const ibv_data_buf &piece : std::span(list, count))
      add_inline(request, piece.addr, piece.length);
  }).wr_set_inline_data_list(qp, count, list);
}

void wr_set_ud_addr(ibv_qp_ex *qp, ibv_ah *ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) {
  change(qp, [&](Request &request) {
    request.ah = ah;
    request.dest_qp = remote_qpn;
    request.qkey = remote_qkey;
  }).wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey);
}

// ---- the bracket around them

void wr_start(ibv_qp_ex *qp) {
  Builder &its = builder(qp);
  its.original.wr_start(qp); // takes the provider's lock on the QP
  its.requests.clear();
  its.thread = static_cast<pid_t>(syscall(SYS_gettid));
}

int wr_complete(ibv_qp_ex *qp) {
  Builder &its = builder(qp);
  return its.complete(qp, its);
}

// wr_start forgets what was built before, so wr_abort needs nothing.

} // namespace

Request request_of(const ibv_qp *qp, const ibv_send_wr &wr, std::uint32_t max_sge) {
  Request request{.wr_id = wr.wr_id, .opcode = wr.opcode, .flags = wr.send_flags};
  if (wr.opcode != IBV_WR_BIND_MW && wr.opcode != IBV_WR_LOCAL_INV) {
    request.sge_count = wr.num_sge;
    for (const ibv_sge &sge : elements(wr, max_sge))
      add(request, sge);
  }
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
  if (qp->qp_type == IBV_QPT_UD) {
    request.ah = wr.wr.ud.ah;
    request.dest_qp = wr.wr.ud.remote_qpn;
    request.qkey = wr.wr.ud.remote_qkey;
  }
  return request;
}

void replace_builders(ibv_qp *qp, decltype(Builder::complete) complete) {
  static const auto extended = REAL(ibv_qp_to_qp_ex);
  ibv_qp_ex *its = extended(qp);
  if (!its)
    return;
  Builder &kept_of = kept<Builder>().renew(its);
  kept_of.original = *its;
  kept_of.complete = complete;
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

} // namespace preload

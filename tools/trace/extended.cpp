// SPDX-License-Identifier: MIT
// The extended interfaces: work requests built by ibv_wr_*(), completions read in place by
// ibv_start_poll(). Their pointers are in each QP and CQ.

#include "fast_path.hpp"
#include "object_registry.hpp"
#include "names.hpp"
#include "next.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <vector>

namespace trace {
namespace {

// A QP's own between wr_start and wr_complete, which exclude other threads.
struct Builder {
  ibv_qp_ex original{};          // for its function pointers
  std::vector<Request> requests; // since wr_start
};

struct ExtendedCq {
  decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
  decltype(ibv_cq_ex::next_poll) next_poll = nullptr;
  std::uint64_t wc_flags = 0; // what may be read of a completion
};

// Only a QP whose builders were replaced comes here, so there is something kept of it.
Builder &builder(const ibv_qp_ex *qp) {
  return *kept<Builder>().find(qp);
}

// Begins a work request. @return the provider's functions
const ibv_qp_ex &begin(const ibv_qp_ex *qp, Request request) {
  Builder &its = builder(qp);
  request.wr_id = qp->wr_id;
  request.flags = qp->wr_flags;
  quietly([&] { its.requests.push_back(request); });
  return its.original;
}

// Says more about the last one. @return the provider's functions
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
  begin(qp, {.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = imm}).wr_send_imm(qp, imm);
}

void wr_send_inv(ibv_qp_ex *qp, std::uint32_t rkey) {
  begin(qp, {.opcode = IBV_WR_SEND_WITH_INV, .rkey = rkey}).wr_send_inv(qp, rkey);
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

void wr_send_tso(ibv_qp_ex *qp, void *header, std::uint16_t header_size, std::uint16_t mss) {
  begin(qp, {.opcode = IBV_WR_TSO}).wr_send_tso(qp, header, header_size, mss);
}

void wr_local_inv(ibv_qp_ex *qp, std::uint32_t rkey) {
  begin(qp, {.opcode = IBV_WR_LOCAL_INV, .rkey = rkey}).wr_local_inv(qp, rkey);
}

void wr_bind_mw(ibv_qp_ex *qp, ibv_mw *mw, std::uint32_t rkey, const ibv_mw_bind_info *info) {
  begin(qp, {.opcode = IBV_WR_BIND_MW, .rkey = rkey}).wr_bind_mw(qp, mw, rkey, info);
}

// ---- each adds to the last one

void wr_set_sge(ibv_qp_ex *qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  change(qp, [&](Request &request) {
    request.length = length;
  }).wr_set_sge(qp, lkey, address, length);
}

void wr_set_sge_list(ibv_qp_ex *qp, std::size_t count, const ibv_sge *list) {
  change(qp, [&](Request &request) {
    for (std::size_t i = 0; i < count; ++i)
      request.length += list[i].length;
  }).wr_set_sge_list(qp, count, list);
}

void wr_set_inline_data(ibv_qp_ex *qp, void *address, std::size_t length) {
  change(qp, [&](Request &request) {
    request.length = length;
    request.flags |= IBV_SEND_INLINE;
  }).wr_set_inline_data(qp, address, length);
}

void wr_set_inline_data_list(ibv_qp_ex *qp, std::size_t count, const ibv_data_buf *list) {
  change(qp, [&](Request &request) {
    for (std::size_t i = 0; i < count; ++i)
      request.length += list[i].length;
    request.flags |= IBV_SEND_INLINE;
  }).wr_set_inline_data_list(qp, count, list);
}

void wr_set_ud_addr(ibv_qp_ex *qp, ibv_ah *ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) {
  change(qp, [&](Request &request) {
    request.dest_qp = remote_qpn;
  }).wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey);
}

// ---- the bracket around them

void wr_start(ibv_qp_ex *qp) {
  Builder &its = builder(qp);
  its.original.wr_start(qp); // takes the provider's lock on the QP
  its.requests.clear();
}

int wr_complete(ibv_qp_ex *qp) {
  Builder &its = builder(qp);
  Event event("ibv_wr_complete");
  event.json([&](Json &json) {
    List list;
    for (const Request &request : its.requests)
      list.add(request, &qp->qp_base);
    event.text([&] { return label(&qp->qp_base) + ": " + list.text(); });
    json.number("qp", qp->qp_base.qp_num).raw("wrs", list.json());
  });
  const int error = event.errno_returned(its.original.wr_complete(qp));
  if (error) // all or nothing
    event.json([](Json &json) { json.number("bad", 0); });
  return error;
}

// wr_start forgets what was built before, so wr_abort needs nothing.

// ---- completions read in place

Completion completion_of(ibv_cq_ex *cq, std::uint64_t wc_flags) {
  Completion completion{.wr_id = cq->wr_id, .status = cq->status, .qp_num = std::nullopt};
  completion.qp_num = wc_flags & IBV_WC_EX_WITH_QP_NUM ? cq->read_qp_num(cq) : only_qp(cq);
  if (cq->status != IBV_WC_SUCCESS)
    return completion;
  completion.opcode = cq->read_opcode(cq);
  if (completion.opcode & IBV_WC_RECV) {
    if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
      completion.length = cq->read_byte_len(cq);
    if (wc_flags & IBV_WC_EX_WITH_IMM && cq->read_wc_flags(cq) & IBV_WC_WITH_IMM)
      completion.imm = ntohl(cq->read_imm_data(cq));
  }
  return completion;
}

// @return error, what the poll has returned
int polled(Event &event, ibv_cq_ex *cq, std::uint64_t wc_flags, int error) {
  if (error == ENOENT) { // nothing there: no failure
    event.ended();
    event.forget();
    return error;
  }
  event.errno_returned(error);
  event.json([&](Json &json) {
    List list;
    if (!error)
      list.add(completion_of(cq, wc_flags));
    event.text([&] { return label(cq) + (error ? "" : ": " + list.text()); });
    json.string("cq", label(cq)).number("empty", take_empty_polls(cq)).raw("wcs", list.json());
  });
  return error;
}

int start_poll(ibv_cq_ex *cq, ibv_poll_cq_attr *attr) {
  const ExtendedCq &its = *kept<ExtendedCq>().find(cq);
  Event event("ibv_start_poll");
  const int error = polled(event, cq, its.wc_flags, its.start_poll(cq, attr));
  if (error == ENOENT)
    quietly([&] { count_empty_poll(cq); });
  return error;
}

int next_poll(ibv_cq_ex *cq) {
  const ExtendedCq &its = *kept<ExtendedCq>().find(cq);
  Event event("ibv_next_poll");
  return polled(event, cq, its.wc_flags, its.next_poll(cq));
}

} // namespace

void watch_builders(ibv_qp *qp) {
  static const auto extended = REAL(ibv_qp_to_qp_ex);
  ibv_qp_ex *its = extended(qp);
  if (!its)
    return;
  kept<Builder>().renew(its).original = *its;
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
  ExtendedCq &its = kept<ExtendedCq>().renew(cq);
  its = {.start_poll = cq->start_poll, .next_poll = cq->next_poll, .wc_flags = wc_flags};
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
}

} // namespace trace

// SPDX-License-Identifier: MIT
// The extended interfaces: the end of a list that ibv_wr_*() builds, and completions read in place
// by ibv_start_poll(). Their pointers are in each QP and CQ.

#include "fast_path.hpp"
#include "names.hpp"
#include "object_registry.hpp"

#include <arpa/inet.h>
#include <cerrno>

namespace trace {
namespace {

using preload::kept;

struct ExtendedCq {
  decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
  decltype(ibv_cq_ex::next_poll) next_poll = nullptr;
  std::uint64_t wc_flags = 0; // fields of a completion that may be read
};

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

int completed_list(ibv_qp_ex *qp, const preload::Builder &built) {
  Event event("ibv_wr_complete");
  event.json([&](Json &json) {
    List list;
    for (const preload::Request &request : built.requests)
      list.add(request, &qp->qp_base);
    event.text([&] { return label(&qp->qp_base) + ": " + list.text(); });
    json.number("qp", qp->qp_base.qp_num).raw("wrs", list.json());
  });
  const int error = event.errno_returned(built.original.wr_complete(qp));
  if (error) // all or nothing
    event.json([](Json &json) { json.number("bad", 0); });
  return error;
}

void watch_cq(ibv_cq_ex *cq, std::uint64_t wc_flags) {
  ExtendedCq &its = kept<ExtendedCq>().renew(cq);
  its = {.start_poll = cq->start_poll, .next_poll = cq->next_poll, .wc_flags = wc_flags};
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
}

} // namespace trace

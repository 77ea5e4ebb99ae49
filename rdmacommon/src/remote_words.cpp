// SPDX-License-Identifier: MIT
#include "rdmacommon/remote_words.hpp"

#include "rdmacommon/requests.hpp"

namespace rdmacommon {

RemoteWords::RemoteWords(ibv_qp *qp, ibv_cq *cq, ibv_mr *result_mr, uint64_t &result,
                         const RemoteMemory &theirs, std::chrono::seconds timeout)
    : qp_(qp), cq_(cq), result_mr_(result_mr), result_(result), theirs_(theirs), timeout_(timeout) {
}

uint64_t RemoteWords::fetch_add(size_t offset, uint64_t add, Where where) {
  ibv_send_wr request{.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
  request.wr.atomic = {
      .remote_addr = theirs_.address + offset, .compare_add = add, .rkey = theirs_.rkey};
  return run(request, where);
}

uint64_t RemoteWords::compare_swap(size_t offset, uint64_t expected, uint64_t desired,
                                   Where where) {
  ibv_send_wr request{.opcode = IBV_WR_ATOMIC_CMP_AND_SWP};
  request.wr.atomic = {.remote_addr = theirs_.address + offset,
                       .compare_add = expected,
                       .swap = desired,
                       .rkey = theirs_.rkey};
  return run(request, where);
}

uint64_t RemoteWords::read(size_t offset, Where where) {
  ibv_send_wr request{.opcode = IBV_WR_RDMA_READ};
  request.wr.rdma = {.remote_addr = theirs_.address + offset, .rkey = theirs_.rkey};
  return run(request, where);
}

void RemoteWords::write(size_t offset, uint64_t value, Where where) {
  ibv_send_wr request{.opcode = IBV_WR_RDMA_WRITE};
  request.wr.rdma = {.remote_addr = theirs_.address + offset, .rkey = theirs_.rkey};
  result_ = value;
  run(request, where);
}

uint64_t RemoteWords::run(ibv_send_wr request, Where where) {
  ibv_sge result = piece(result_mr_, &result_, sizeof result_);
  request.sg_list = &result;
  request.num_sge = 1;
  request.send_flags = IBV_SEND_SIGNALED;
  post_send(qp_, request, where);
  wait_for_completion(cq_, "the access to the word", timeout_, where);
  return result_;
}

} // namespace rdmacommon

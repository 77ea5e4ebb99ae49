// SPDX-License-Identifier: MIT
// Atomics on words of eight bytes in another side's memory, one request at a time: lesson 07's
// class Remote.
#pragma once

#include <rdmacommon/exchange.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>

// Offsets are in bytes from the beginning of the other side's memory, and multiples of eight. Its
// NIC checks that they lie inside, and nothing here does.
class RemoteWords {
public:
  // The queue pair is in RTS, and only its requests complete in `cq`. `result` lies in `result_mr`,
  // and receives the old values.
  RemoteWords(ibv_qp *qp, ibv_cq *cq, ibv_mr *result_mr, uint64_t &result,
              const rdmacommon::RemoteMemory &theirs, std::chrono::seconds timeout)
      : qp_(qp), cq_(cq), result_mr_(result_mr), result_(result), theirs_(theirs),
        timeout_(timeout) {}

  // Returns what the word was before.
  uint64_t fetch_add(size_t offset, uint64_t add) {
    ibv_send_wr request{.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
    request.wr.atomic = {
        .remote_addr = theirs_.address + offset, .compare_add = add, .rkey = theirs_.rkey};
    return run(request);
  }

  // Returns what the word was before. It has changed if that is `expected`.
  uint64_t compare_swap(size_t offset, uint64_t expected, uint64_t desired) {
    ibv_send_wr request{.opcode = IBV_WR_ATOMIC_CMP_AND_SWP};
    request.wr.atomic = {.remote_addr = theirs_.address + offset,
                         .compare_add = expected,
                         .swap = desired,
                         .rkey = theirs_.rkey};
    return run(request);
  }

private:
  uint64_t run(ibv_send_wr request) {
    ibv_sge result = rdmacommon::piece(result_mr_, &result_, sizeof result_);
    request.sg_list = &result;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    rdmacommon::post_send(qp_, request);
    rdmacommon::wait_for_completion(cq_, "the atomic", timeout_);
    return result_;
  }

  ibv_qp *qp_;
  ibv_cq *cq_;
  ibv_mr *result_mr_;
  uint64_t &result_;
  rdmacommon::RemoteMemory theirs_;
  std::chrono::seconds timeout_;
};

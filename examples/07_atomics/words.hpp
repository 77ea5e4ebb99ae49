// SPDX-License-Identifier: MIT
// The server's memory in 07_atomics, and the atomics that a client does on it.
#pragma once

#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

// [words]
// An atomic works on eight bytes, at an address that eight divides.
struct alignas(8) Words {
  uint64_t counter; // number of increments, by all clients
  uint64_t lock;    // upper half: how many holders there have been; lower half: who holds it, or 0
  uint64_t value;   // upper half: the holder that may write it; lower half: what the lock protects
  uint64_t takeovers; // times that the lock was taken from a holder that kept it too long
};

inline uint64_t word(uint64_t upper, uint64_t lower) {
  return upper << 32 | lower;
}
inline uint64_t upper(uint64_t word) {
  return word >> 32;
}
inline uint64_t lower(uint64_t word) {
  return word & 0xffffffff;
}
// [words]

// One client's connection to the words. Not thread-safe: there is one place for what comes back.
class Remote {
public:
  Remote(ibv_qp *qp, ibv_cq *cq, ibv_mr *result_mr, uint64_t &result,
         const rdmacommon::RemoteMemory &theirs, std::chrono::seconds timeout)
      : qp_(qp), cq_(cq), result_mr_(result_mr), result_(result), theirs_(theirs),
        timeout_(timeout) {}

  // [atomics]
  // Adds to the word at `offset`. Returns what was there before.
  uint64_t fetch_add(size_t offset, uint64_t add) {
    ibv_send_wr request{.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
    request.wr.atomic = {
        .remote_addr = theirs_.address + offset, .compare_add = add, .rkey = theirs_.rkey};
    return run(request);
  }

  // If the word at `offset` is `expected`, it becomes `desired`. Returns what was there before: if
  // that is `expected`, the word has changed.
  uint64_t compare_swap(size_t offset, uint64_t expected, uint64_t desired) {
    ibv_send_wr request{.opcode = IBV_WR_ATOMIC_CMP_AND_SWP};
    request.wr.atomic = {.remote_addr = theirs_.address + offset,
                         .compare_add = expected,
                         .swap = desired,
                         .rkey = theirs_.rkey};
    return run(request);
  }
  // [atomics]

  uint64_t read(size_t offset) {
    ibv_send_wr request{.opcode = IBV_WR_RDMA_READ};
    request.wr.rdma = {.remote_addr = theirs_.address + offset, .rkey = theirs_.rkey};
    return run(request);
  }

  void write(size_t offset, uint64_t value) {
    ibv_send_wr request{.opcode = IBV_WR_RDMA_WRITE};
    request.wr.rdma = {.remote_addr = theirs_.address + offset, .rkey = theirs_.rkey};
    result_ = value;
    run(request);
  }

private:
  uint64_t run(ibv_send_wr request) {
    ibv_sge result = rdmacommon::piece(result_mr_, &result_, sizeof result_);
    request.sg_list = &result;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    rdmacommon::post_send(qp_, request);
    rdmacommon::wait_for_completion(cq_, "the access to the words", timeout_);
    return result_;
  }

  ibv_qp *qp_;
  ibv_cq *cq_;
  ibv_mr *result_mr_;
  uint64_t &result_;
  rdmacommon::RemoteMemory theirs_;
  std::chrono::seconds timeout_;
};

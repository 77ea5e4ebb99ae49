// SPDX-License-Identifier: MIT
/// @file
/// Words of eight bytes in the other side's memory: atomics, READ and WRITE on one of them at a
/// time.
///
/// Written out in lesson 07_atomics; see also ibv_post_send(3).
#pragma once

#include "rdmacommon/exchange.hpp"

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rdmacommon {

/// A piece of the other side's memory as an array of words that its own NIC reads and changes. Each
/// call posts one request, polls until it has completed, and throws Error if it fails or takes too
/// long. Offsets are in bytes from the beginning of that memory, and multiples of eight.
///
/// Atomics take and return numbers: on the wire they are in network byte order, in the other side's
/// memory as its CPU has them. A READ and a WRITE move eight bytes as they are, so they fit to that
/// only if both sides have the same byte order.
///
/// Not thread-safe: there is one place for what comes back.
class RemoteWords {
public:
  /// @param qp        in RTS, with room for one request; outlives this object, as all of these do
  /// @param cq        where the QP's requests complete, and nothing else does meanwhile
  /// @param result_mr the region that `result` lies in, with IBV_ACCESS_LOCAL_WRITE
  /// @param result    for what comes back, and for what is written
  /// @param theirs    what the other side shares; nothing here checks that an offset lies in it,
  ///                  its NIC does
  /// @param timeout   how long a request may take
  RemoteWords(ibv_qp *qp, ibv_cq *cq, ibv_mr *result_mr, uint64_t &result,
              const RemoteMemory &theirs, std::chrono::seconds timeout);

  /// Adds to the word. @return what was there before
  uint64_t fetch_add(size_t offset, uint64_t add, Where where = Where::here());

  /// Replaces the word by `desired` if it is `expected`.
  /// @return what was there before: it has worked if that is `expected`
  uint64_t compare_swap(size_t offset, uint64_t expected, uint64_t desired,
                        Where where = Where::here());

  /// An RDMA READ, which is not atomic. @return the word
  uint64_t read(size_t offset, Where where = Where::here());

  /// An RDMA WRITE, which is not atomic either.
  void write(size_t offset, uint64_t value, Where where = Where::here());

private:
  uint64_t run(ibv_send_wr request, Where where);

  ibv_qp *qp_;
  ibv_cq *cq_;
  ibv_mr *result_mr_;
  uint64_t &result_;
  RemoteMemory theirs_;
  std::chrono::seconds timeout_;
};

} // namespace rdmacommon

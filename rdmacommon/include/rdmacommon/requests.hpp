// SPDX-License-Identifier: MIT
/// @file
/// Posting one work request, and waiting for one to complete.
///
/// Written out in lesson 02_send_recv; see also ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3).
#pragma once

#include "rdmacommon/check.hpp"

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <optional>

namespace rdmacommon {

/// A piece of registered memory, as work requests name it.
/// @param mr      the region that the piece lies in
/// @param address where it begins; it is not looked at before the request runs
/// @param length  its length in bytes
ibv_sge piece(const ibv_mr *mr, const void *address, size_t length);

/// Posts `request`, which may be a list by its `next`, to the send queue. Its SGEs are read at
/// once; the memory that they name belongs to the NIC until the request has completed, except with
/// IBV_SEND_INLINE.
/// @throws Error if the queue is full or the request is not right
void post_send(ibv_qp *qp, ibv_send_wr request, Where where = Where::here());

/// Posts `request`, which may be a list by its `next`, to the receive queue. Its SGEs are read at
/// once; the memory that they name belongs to the NIC until the request has completed.
/// @throws Error if the queue is full or the request is not right
void post_recv(ibv_qp *qp, ibv_recv_wr request, Where where = Where::here());

/// Posts `request` to a shared receive queue, as post_recv() does to a QP's. The message of any QP
/// that was created with it may take the request, and its completion goes to that QP's CQ.
/// Introduced in lesson 09_shared_receive.
/// @throws Error if the queue is full or the request is not right
void post_srq_recv(ibv_srq *srq, ibv_recv_wr request, Where where = Where::here());

/// Polls until one request has completed. For 10 ms it polls without a pause, which uses a whole
/// CPU. After that it polls once a millisecond, since the other side may need that CPU. Not to be
/// called by two threads for one CQ: each would take the other's completions.
/// @param what    what is waited for, in words, for the error message: "the receive"
/// @param timeout how long
/// @return the completion, whose status is IBV_WC_SUCCESS
/// @throws Error if the request failed, or if nothing has completed in time
ibv_wc wait_for_completion(ibv_cq *cq, const char *what, std::chrono::seconds timeout,
                           Where where = Where::here());

/// Waits for a completion. A failed one, or none in time, is a result here and no error. Introduced
/// in lesson 10_memory_windows, as next_completion().
/// @param limit how long; 0 polls once
/// @return the completion, whatever its status; nothing if there was none in time
/// @throws Error if the CQ cannot be polled
std::optional<ibv_wc> poll_within(ibv_cq *cq, std::chrono::milliseconds limit,
                                  Where where = Where::here());

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
/// @file
/// The two work queues of a QP, with an account of how full they are, for programs that post many
/// requests with one call.
///
/// Written out in lesson 21_group_send; see also ibv_post_send(3), ibv_post_recv(3).
#pragma once

#include "rdmacommon/check.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmacommon {

/// The send queue of one QP, with an exact account of how full it is. Requests get numbers, 1, 2,
/// …, which are their wr_id, and only some of them are signaled. Not thread-safe. Nothing else may
/// post to this send queue.
///
///     rdmacommon::SendQueue queue(qp.get(), depth);
///     while (queue.room() == 0)
///       queue.completed(rdmacommon::wait_for_completion(cq.get(), "a SEND", timeout));
///     queue.add(request);
///     queue.post();
class SendQueue {
public:
  /// @param qp    outlives this object. Its SENDs must complete only when they ask to (sq_sig_all
  ///              0, as create_rc_qp() has it), and its send CQ must have room for `depth`
  ///              completions of this queue
  /// @param depth how many requests the queue holds: no more than the max_send_wr with which the QP
  ///              was created
  /// @throws Error if depth is 0
  SendQueue(ibv_qp *qp, uint32_t depth);

  /// The number of requests that may be added now. A sent request gives its place back in
  /// completed(), and only there: that something has gone out, or that the peer has answered it,
  /// does not mean that its place is free. A wait for one place always ends. A caller that waits
  /// for more than half of the queue must ask for the completion of the last request
  /// (IBV_SEND_SIGNALED), since requests behind the last signaled one have none.
  uint32_t room() const { return depth_ - static_cast<uint32_t>(added_ - done_); }

  /// Adds a request, to go with the next post().
  /// @param request num_sge is 0 or 1. The SGE is copied, but not what it names: that must stay as
  ///                it is until post() has returned if the request has IBV_SEND_INLINE, and else
  ///                until the request has completed. wr_id and next are set here. It is signaled if
  ///                it asks for it (IBV_SEND_SIGNALED), and also if depth / 2 - 1 before it were
  ///                not: so there is always one whose completion will make room
  /// @throws Error if there is no room, or more than one SGE
  void add(const ibv_send_wr &request, Where where = Where::here());

  /// Posts all that were added since the last post(), in one call of ibv_post_send(); none if there
  /// is nothing.
  /// @throws Error if the device refuses. How much of it has gone out is not known then: the QP is
  ///         of no more use
  void post(Where where = Where::here());

  /// Takes note of a completion: all requests up to that one are done, and their places are free.
  /// @param wc of this QP's send queue, each passed once, in the order in which the CQ gave them
  /// @throws Error if the request failed, or if the completion cannot be one of this queue
  void completed(const ibv_wc &wc, Where where = Where::here());

  /// The number of the request that was added last; 0: none.
  uint64_t added() const { return added_; }
  uint64_t done() const { return done_; }   ///< The number up to which all requests have completed.
  uint64_t posts() const { return posts_; } ///< Calls of ibv_post_send() so far.

private:
  ibv_qp *qp_;
  uint32_t depth_, signal_every_, unsignaled_ = 0; // unsignaled_: since the last one that is
  uint64_t added_ = 0, posted_ = 0, done_ = 0, posts_ = 0;
  std::vector<ibv_send_wr> requests_; // added and not posted
  std::vector<ibv_sge> pieces_;       // one for each
};

/// The receive queue of one QP whose peer only writes (RDMA WRITE with immediate data): its
/// receives have no SGE. Not thread-safe. Nothing else may post to this receive queue.
///
///     rdmacommon::ReceiveQueue queue(qp.get(), depth); // in INIT
///     const uint32_t immediate =
///         queue.received(rdmacommon::wait_for_completion(cq.get(), "a message", timeout));
///     queue.repost(); // before the peer learns that it may send more
class ReceiveQueue {
public:
  /// Posts the receives, in one chain. Call it in INIT, before the peer can send.
  /// @param qp    outlives this object; its receives complete in a CQ with room for `depth` of them
  /// @param depth how many messages may be under way to this side: no more than the QP's
  ///              max_recv_wr. A peer that does not send more never finds the queue empty
  /// @throws Error if depth is 0, or the device refuses
  ReceiveQueue(ibv_qp *qp, uint32_t depth);

  /// Takes note of a completion.
  /// @param wc of this QP's receive queue, each passed once
  /// @return the immediate data, in network byte order
  /// @throws Error if the receive failed, or what came is no RDMA WRITE with immediate data
  uint32_t received(const ibv_wc &wc, Where where = Where::here());

  /// The number of receives that have completed and have not been posted again.
  uint32_t used() const { return used_; }

  /// Posts a receive for each that has been used, in one chain, by one call of ibv_post_recv();
  /// none if there is nothing. Call it before the peer learns that it may send more.
  /// @return whether it has posted
  /// @throws Error if the device refuses
  bool repost(Where where = Where::here());

private:
  ibv_qp *qp_;
  uint32_t used_;
  std::vector<ibv_recv_wr> chain_; // all alike, each linked to the next
};

} // namespace rdmacommon

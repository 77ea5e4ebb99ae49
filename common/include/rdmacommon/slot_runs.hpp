// SPDX-License-Identifier: MIT
/// @file
/// Runs of slots, sent from a ring of slots into the peer's mirror of it: many messages with one
/// request.
///
/// A *mirror* is memory of the same shape as a SlotRing's data, on the other host. A run of slots
/// goes into it by one RDMA WRITE with immediate data, and the immediate data say which slots they
/// are.
///
/// Written out in lesson 21_group_send; the slots are lesson 18's, the immediate data lesson 05's.
#pragma once

#include "rdmacommon/check.hpp"
#include "rdmacommon/immediate.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmacommon {

// [slot-header]
/// What the first slot of each message begins with. The message's bytes follow, over as many slots
/// as it takes. In the slots it is in network byte order, with nothing between the fields.
struct SlotHeader {
  uint32_t length; ///< Of the message in bytes, without this header.
  uint16_t kind;   ///< What it means is up to the protocol.
  uint16_t flags;  ///< What they mean is up to the protocol.
  uint64_t id;     ///< Which message this is; how ids are given is up to the protocol.

  bool operator==(const SlotHeader &) const = default; ///< Whether all of it is the same.
};
static_assert(sizeof(SlotHeader) == 16);
// [slot-header]

/// A header as it stands in a slot.
/// @param header in host byte order
/// @return the same in network byte order
SlotHeader to_wire(SlotHeader header);

/// The reverse. Any 16 bytes are a header; whether it makes sense is for the caller to check.
/// @param header in network byte order, and a copy: the peer can change what lies in a slot at any
///               moment
/// @return the same in host byte order
SlotHeader from_wire(SlotHeader header);

/// Copies a header out of memory that others can write to. The copy does not change any more when
/// they do, so a check of the copy holds.
/// @param slot where the header stands, at a multiple of 8 bytes
/// @return the same 16 bytes
SlotHeader copied_header(std::byte *slot);

/// How many slots a message takes, its header included.
/// @param length    of the message in bytes, without its header; any number, also one that a peer
///                  has sent
/// @param slot_size in bytes, more than 0
uint32_t slots_of(uint32_t length, uint32_t slot_size);

/// The send queue of one QP, with an exact account of how full it is. Requests get numbers, 1, 2,
/// …, which are their wr_id, and only some of them are signaled. Not thread-safe. Nothing else may
/// post to this send queue.
class SendQueue {
public:
  /// @param qp    outlives this object. Its SENDs must complete only when they ask to (sq_sig_all
  ///              0, as create_rc_qp()
  ///              has it), and its send CQ must have room for `depth` completions of this queue
  /// @param depth how many requests the queue holds: no more than the max_send_wr with which the QP
  ///              was created
  /// @throws Error if depth is 0
  SendQueue(ibv_qp *qp, uint32_t depth);

  /// How many more requests may be added now. What has been sent gives its places back in
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

  uint64_t added() const {
    return added_;
  } ///< The number of the request that was added last; 0: none.
  uint64_t done() const { return done_; }   ///< All requests up to this number have completed.
  uint64_t posts() const { return posts_; } ///< Calls of ibv_post_send() so far.

private:
  ibv_qp *qp_;
  uint32_t depth_, signal_every_, unsignaled_ = 0; // unsignaled_: since the last one that is
  uint64_t added_ = 0, posted_ = 0, done_ = 0, posts_ = 0;
  std::vector<ibv_send_wr> requests_; // added and not posted
  std::vector<ibv_sge> pieces_;       // one for each
};

/// Where runs of slots lie here, and where they go.
struct SlotMirror {
  const ibv_mr *mine; ///< Slot 0 begins where this region begins. May be null if no data are sent.
  uint32_t slot_size; ///< In bytes.
  uint64_t address;   ///< Of slot 0 in the peer's memory, in host byte order.
  uint32_t rkey;      ///< Of the peer's memory.
  uint32_t
      max_inline; ///< Up to so many bytes go inline: the QP's max_inline_data or less; 0: none.
};

/// Adds the request that sends a run: an RDMA WRITE with immediate data, from the run's first slot
/// to the same place in the mirror. The immediate data are the run.
/// @param queue  with room for one request
/// @param run    its count may be 0 if the protocol gives that a meaning
/// @param bytes  from the beginning of the first slot on. They may end within the last slot; 0:
///               only the immediate data
/// @param flags  of ibv_send_wr, besides: IBV_SEND_SIGNALED if the caller must know when the slots
///               have been read
/// @throws Error if the run is not one, if `bytes` are more than its slots have or lie outside the
///               region, or if there is no room
void add_run(SendQueue &queue, const SlotMirror &mirror, Run run, uint32_t bytes,
             unsigned flags = 0, Where where = Where::here());

/// Reads the immediate data of a peer that sends runs.
/// @param imm_data in network byte order, as ibv_wc::imm_data has it
/// @param slots    how many there are
/// @return a run of 1 to 255 slots, all of which there are
/// @throws Error if it is none
Run checked_run(uint32_t imm_data, uint32_t slots, Where where = Where::here());

/// The receive queue of one QP whose peer sends runs. Its receives have no SGE, since the data go
/// into the slots. Not thread-safe. Nothing else may post to this receive queue.
class RunReceiver {
public:
  /// Posts the receives, in one chain. To be called in INIT, before the peer can send.
  /// @param qp    outlives this object; its receives complete in a CQ with room for `depth` of them
  /// @param depth how many runs may be under way to this side: no more than the QP's max_recv_wr. A
  ///              peer that does not send more never finds the queue empty
  /// @param slots which runs there can be: those within so many slots
  /// @throws Error if depth is 0, or the device refuses
  RunReceiver(ibv_qp *qp, uint32_t depth, uint32_t slots);

  /// Takes note of a completion, and checks what the peer says with it.
  /// @param wc of this QP's receive queue, each passed once
  /// @return a run of 1 to 255 slots, all of which there are. Where the bytes went, and how many
  ///         they are (ibv_wc::byte_len), is for the caller to compare with it
  /// @throws Error if the receive failed, or what came is not a run
  Run received(const ibv_wc &wc, Where where = Where::here());

  /// Posts a receive for each that has been used, in one chain, by one call of ibv_post_recv();
  /// none if there is nothing. To be called before the peer learns that it may send more.
  /// @throws Error if the device refuses
  void repost(Where where = Where::here());

  uint64_t posts() const { return posts_; } ///< Calls of ibv_post_recv() so far.

private:
  ibv_qp *qp_;
  uint32_t slots_, used_;
  uint64_t posts_ = 0;
  std::vector<ibv_recv_wr> chain_; // all alike, each linked to the next
};

} // namespace rdmacommon

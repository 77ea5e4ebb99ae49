// SPDX-License-Identifier: MIT
/// @file
/// A reliable-connection queue pair from RESET to RTS.
///
/// Written out in lesson 02_send_recv; see also ibv_modify_qp(3), which lists what each transition
/// requires.
#pragma once

#include "rdmacommon/device.hpp"
#include "rdmacommon/exchange.hpp"
#include "rdmacommon/handles.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace rdmacommon {

/// Creates a reliable-connection QP, in state RESET, whose SENDs complete only when they ask to.
/// @param pd  the protection domain; outlives the QP
/// @param cq  receives the completions of both queues; outlives the QP
/// @param cap how many requests and SGEs each queue holds
/// @throws Error if a capacity is over the device's limits
unique_qp create_rc_qp(ibv_pd *pd, ibv_cq *cq, const ibv_qp_cap &cap, Where where = Where::here());

/// Creates a reliable-connection QP with a CQ for each of the two queues, for a program that waits
/// for the one or the other. Used in lesson 05_write_with_imm.
unique_qp create_rc_qp(ibv_pd *pd, ibv_cq *send_cq, ibv_cq *recv_cq, const ibv_qp_cap &cap,
                       Where where = Where::here());

/// Creates a reliable-connection QP that takes its receives from `srq`, and has no receive queue.
/// Written out in lesson 09_shared_receive.
/// @param srq of the same PD; outlives the QP
/// @param cap max_recv_wr and max_recv_sge are ignored
unique_qp create_rc_qp(ibv_pd *pd, ibv_cq *send_cq, ibv_cq *recv_cq, ibv_srq *srq,
                       const ibv_qp_cap &cap, Where where = Where::here());

/// The route of packets from `port` to the peer's: by LID on InfiniBand, by GID (in a GRH) on RoCE.
ibv_ah_attr route_to(const Port &port, const Endpoint &peer);

/// The address of `qp` on this side's `port`, for the peer.
/// @param psn the number of the first packet that it will send, as to_rts() gets it
Endpoint endpoint_of(const ibv_qp *qp, const Port &port, uint32_t psn);

/// RESET -> INIT. From here on receives may be posted.
/// @param access what the peer may do to this side's memory: 0 or IBV_ACCESS_REMOTE_*
/// @throws Error if the device refuses
void to_init(ibv_qp *qp, const Port &port, unsigned access = 0, Where where = Where::here());

/// INIT -> RTR. From here on the QP takes packets from `peer`. The path MTU is the smaller one of
/// the two sides'.
/// @param max_dest_rd_atomic READs and atomics of the peer's to serve at a time, not fewer than its
///        max_rd_atomic; at most the device's max_qp_rd_atom (lesson 04_read_write)
/// @throws Error if the device refuses, as it does on RoCE if the peer sent no GID
void to_rtr(ibv_qp *qp, const Port &port, const Endpoint &peer, uint8_t max_dest_rd_atomic = 1,
            Where where = Where::here());

/// RTR -> RTS. From here on the QP may send.
/// @param psn the 24-bit packet sequence number that the peer was told
/// @param max_rd_atomic READs and atomics of this side's under way at a time; at most the device's
///        max_qp_init_rd_atom
/// @throws Error if the device refuses
void to_rts(ibv_qp *qp, uint32_t psn, uint8_t max_rd_atomic = 1, Where where = Where::here());

/// RESET -> RTS, with itself as the peer: what this QP sends comes back to it. Written out in
/// exercise 02.2.
/// @param access as for to_init()
/// @throws Error if the device refuses
void connect_to_itself(ibv_qp *qp, const Port &port, unsigned access = 0,
                       Where where = Where::here());

/// Any state -> ERR. Whatever is posted completes with IBV_WC_WR_FLUSH_ERR, and nothing goes out
/// any more. Written out in lesson 11_when_it_breaks.
/// @throws Error if the device refuses
void to_error(ibv_qp *qp, Where where = Where::here());

/// The state that `qp` is in now, as the device says: "RESET", "INIT", "RTR", "RTS", "SQD", "SQE"
/// or "ERR". What its peer may be doing at the time can change it. Written out in lesson
/// 10_memory_windows.
/// @return a literal
/// @throws Error if the device cannot be asked
const char *state_of(ibv_qp *qp, Where where = Where::here());

/// INIT -> RTS, with everything that this takes: tells the peer where `qp` is, learns where its QP
/// is, and returns when both are in RTS. Whatever the peer may send at once needs its receives
/// posted before.
/// @param exchange the connection to the peer, nothing sent yet
/// @throws Error if the peer is gone or says what is not right, or if the device refuses
void connect(ibv_qp *qp, const Port &port, Exchange &exchange, const PairOptions &options,
             Where where = Where::here());

/// Connects, where each side also shares memory. Written out in lesson 04_read_write.
/// @param mine what the peer may use, as the access flags allow
/// @return what the peer shares, as it says; only its NIC knows whether it is true
RemoteMemory connect(ibv_qp *qp, const Port &port, Exchange &exchange, const PairOptions &options,
                     const RemoteMemory &mine, Where where = Where::here());

} // namespace rdmacommon

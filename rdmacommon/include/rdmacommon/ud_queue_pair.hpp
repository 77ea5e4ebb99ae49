// SPDX-License-Identifier: MIT
/// @file
/// Unreliable datagrams: a queue pair without a peer, and the handle of an address to send to.
///
/// A datagram needs an address handle, the QP number and the Q_Key of where it goes, all three in
/// its work request (`wr.ud`). The receiver finds it behind `grh_size` bytes of header in its
/// buffer.
///
/// Written out in lesson 08_datagrams; see also ibv_modify_qp(3), ibv_create_ah(3).
#pragma once

#include "rdmacommon/device.hpp"
#include "rdmacommon/exchange.hpp"
#include "rdmacommon/handles.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace rdmacommon {

/// Bytes in front of each received datagram, whether the packet had a GRH or not: room for them is
/// part of every receive, and ibv_wc::byte_len counts them.
constexpr size_t grh_size = sizeof(ibv_grh);

/// Creates an unreliable-datagram QP, in state RESET, whose SENDs complete only when they ask to.
/// @param pd       the protection domain; outlives the QP
/// @param sent     receives the completions of SENDs; outlives the QP
/// @param received receives those of receives; may be the same
/// @param cap      how many requests and SGEs each queue holds
/// @throws Error if a capacity is over the device's limits
unique_qp create_ud_qp(ibv_pd *pd, ibv_cq *sent, ibv_cq *received, const ibv_qp_cap &cap,
                       Where where = Where::here());

/// RESET -> INIT -> RTR -> RTS. A datagram that arrives before its receive is posted is lost.
/// @param qkey the Q_Key that a datagram must carry to be taken; the same 32 bits on all sides
/// @throws Error if the device refuses
void ud_to_rts(ibv_qp *qp, const Port &port, uint32_t qkey, Where where = Where::here());

/// The handle of the port where `peer` is, for any number of QPs and SENDs of this PD.
/// @param pd   the protection domain of the QPs that will use it; outlives the handle
/// @param peer its lid and gid are used; QP number and Q_Key go into the work request
/// @throws Error if there is no way to the address
unique_ah create_ah(ibv_pd *pd, const Port &port, const Endpoint &peer,
                    Where where = Where::here());

} // namespace rdmacommon

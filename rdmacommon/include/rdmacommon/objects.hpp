// SPDX-License-Identifier: MIT
/// @file
/// The objects that every program creates, each by one checked call that returns its owning handle.
///
/// Written out in lesson 02_send_recv; see also ibv_alloc_pd(3), ibv_reg_mr(3), ibv_create_cq(3).
/// The other objects stand with what they are used for: queue pairs in queue_pair.hpp and
/// ud_queue_pair.hpp, completion channels in completions.hpp.
#pragma once

#include "rdmacommon/check.hpp"
#include "rdmacommon/handles.hpp"

#include <infiniband/verbs.h>

#include <cstddef>

namespace rdmacommon {

/// Allocates a protection domain.
/// @param device outlives the domain
/// @throws Error if the device has no room for it
unique_pd alloc_pd(ibv_context *device, Where where = Where::here());

/// Registers memory, which pins its pages: work requests may name them until the region is
/// destroyed.
/// @param pd      outlives the region; the QPs that use the region are of the same domain
/// @param address where the memory begins; it stays the caller's, and outlives the region
/// @param length  in bytes
/// @param access  IBV_ACCESS_* flags; 0 lets the device read the memory for this side's requests,
///                and nothing else
/// @throws Error if the process may not lock so much memory, or the device refuses
unique_mr reg_mr(ibv_pd *pd, void *address, size_t length, int access, Where where = Where::here());

/// Returns the access flags for memory that the READs of this side fill. An iWARP device treats the
/// answer to a READ as a WRITE of the peer (lesson 34_iwarp), so there the flags also let the peer
/// write.
/// @param device the device of the region
int access_for_reads(const ibv_context *device);

/// Creates a completion queue.
/// @param device  outlives the queue
/// @param cqe     for how many completions it has room, at least: a device may make more room. A
///                completion for which there is no room is an overrun, which breaks the queue
/// @param channel where the queue reports events once it is armed; outlives the queue. Null: none,
///                it is only polled
/// @throws Error if that is more than the device's max_cqe, or there is no memory
unique_cq create_cq(ibv_context *device, int cqe, ibv_comp_channel *channel = nullptr,
                    Where where = Where::here());

} // namespace rdmacommon

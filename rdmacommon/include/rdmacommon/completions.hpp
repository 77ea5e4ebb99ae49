// SPDX-License-Identifier: MIT
/// @file
/// Sleeping until work requests complete, and polling many completions at a time.
///
/// A completion channel is a file descriptor to which a CQ writes an event, *once* for each time
/// that it was armed by ibv_req_notify_cq(). What completes between the last poll and the arming is
/// not told, so one polls, arms, and polls again before one sleeps: wait_for_completions() does.
///
/// Written out in lesson 06_completions; see also ibv_get_cq_event(3), ibv_req_notify_cq(3).
#pragma once

#include "rdmacommon/check.hpp"
#include "rdmacommon/handles.hpp"

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <span>

namespace rdmacommon {

/// A completion channel that does not block: take_event() comes back at once if there is no event.
/// Its `fd` is readable when there is one, for poll(2) and epoll(7). CQs are tied to it by
/// ibv_create_cq().
/// @param device outlives the channel
/// @throws Error if the device or the process has no room for it
unique_comp_channel create_comp_channel(ibv_context *device, Where where = Where::here());

/// Takes the next event off the channel and acknowledges it. Several threads may take from one
/// channel.
/// @param channel one that does not block, as create_comp_channel() makes it
/// @return the CQ that it is of, which is not armed any more; null if there is no event now
/// @throws Error if the channel cannot be read
ibv_cq *take_event(ibv_comp_channel *channel, Where where = Where::here());

/// Takes completions off a CQ, as many as there are and `into` has room for. Does not wait.
/// @param into filled from its beginning; what is behind the completions stays as it was
/// @return how many; the caller checks the status of each
/// @throws Error if the CQ cannot be polled
size_t poll_batch(ibv_cq *cq, std::span<ibv_wc> into, Where where = Where::here());

/// Sleeps until the CQ has completions, and takes as many as there are and `into` has room for.
/// Arms the CQ only when it is empty, and polls again after that, so that no completion is missed.
/// Only one thread may call this for a CQ and its channel.
/// @param cq      made with a channel of create_comp_channel() that has no other CQ: events of
///                others are lost
/// @param into    not empty
/// @param what    what is waited for, in words, for the error message: "a receive"
/// @param timeout how long
/// @return how many, at least one; the caller checks the status of each
/// @throws Error if nothing has completed in time
size_t wait_for_completions(ibv_cq *cq, std::span<ibv_wc> into, const char *what,
                            std::chrono::milliseconds timeout, Where where = Where::here());

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// Hints that say what to do about an error: the one table of them, private to rdmacommon.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <string>
#include <string_view>

namespace rdmacommon {

// The hint for a call that failed with an error number, or "" where none is known.
// @param call the call's name, perhaps with a detail in parentheses: "ibv_modify_qp(RTR)"
std::string hint_for_errno(std::string_view call, int error);

// The hint for a completion with this status, or "".
std::string hint_for_status(ibv_wc_status status);

// The hint for an rdma_cm event that was not the one that is waited for, or "".
// @param status the event's: a negative error number or, of REJECTED, the reason
std::string hint_for_cm_event(rdma_cm_event_type event, int status);

// The hint for an rdma_cm event that is waited for and does not come, or "".
std::string hint_for_no_cm_event(rdma_cm_event_type wanted);

// The hint for bytes of a peer that no program with this library sends.
std::string hint_for_other_program();

// A hint ends in where to read more: an anchor of the troubleshooting page.
std::string hint(std::string_view what_to_do, std::string_view anchor);

} // namespace rdmacommon

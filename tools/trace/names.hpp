// SPDX-License-Identifier: MIT
// Words for what verbs has numbers and pointers for.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <string>

namespace trace {

// Objects get labels in the order in which they are made: pd1, cq1, cq2, mr1, …
std::string new_label(const char *kind, const void *object);
std::string label(const void *object); // "NULL", or "?" for one whose making was not seen

std::string label(const ibv_qp *qp); // by its number: qp 0x11

// librdmacm makes ids on its own within rdma_create_ep(): whichever call shows one first gives it
// its label.
std::string label(const rdma_cm_id *id);

// The label ends with its object, which may come back at the same address by calls that we do not
// see. What was made and has gone within one call of the program's leaves no gap: librdmacm tries
// things out in its first call.
void end_label(const char *kind, const void *object);

std::string access_flags(unsigned flags);
std::string send_flags(unsigned flags);
std::string send_opcode(ibv_wr_opcode opcode);
std::string completion_opcode(ibv_wc_opcode opcode);
std::string completion_status(ibv_wc_status status);
std::string qp_state(ibv_qp_state state);
std::string qp_type(ibv_qp_type type);
std::string address(const sockaddr *address); // 10.77.0.1:7471, [fd77::1]:7471
std::string gid(const ibv_gid &gid);
std::string async_event(const ibv_async_event &event);
std::string cm_event(rdma_cm_event_type event); // without RDMA_CM_EVENT_

} // namespace trace

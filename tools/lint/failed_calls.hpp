// SPDX-License-Identifier: MIT
// Calls that have failed: what this machine knows of the reason, and where it knows nothing, the
// hint of rdmacommon's table (hints.cpp). And arguments that would crash the library.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <string>

namespace lint {

// Reports the call, unless a library has made it for the program.
// @param error an error number
// @param why   in words, or empty
void failed(const char *call, int error, const std::string &why);

// Remembers, or forgets, that a signal has interrupted the call. A program that does not make it
// again, and ends with an error status, has taken EINTR for a failure. This is reported at its end.
void interrupted(const char *call);
void called_again(const char *call);

// Each returns the reason in words, or an empty string.
std::string why_not_registered(const void *address, std::size_t length, unsigned access, int error);
std::string why_no_qp(ibv_context *context, const ibv_qp_init_attr &attr);
std::string why_no_cq(ibv_context *context, int cqe, int vector);
std::string why_not_connected(const rdma_cm_id *id, const rdma_conn_param *param,
                              std::size_t most_data);

// Reports members of other contexts, and pointers that would crash the library.
// @return whether the call must not be made
bool refuses_qp(const char *call, const ibv_context *context, const ibv_qp_init_attr &attr);

// Returns true if these bytes can be read, or if the kernel does not let the library look.
bool can_be_read(const void *address, std::size_t length);

void report_null(const char *call, const char *what);
void report_unreadable(const char *call, const void *queue, const char *what, const void *where);

// Reports the first request of a list that cannot be read, or whose elements cannot be.
// @param bad set to it
// @return whether the call must not be made
template <typename Wr> bool refuses_list(const char *call, const void *queue, Wr *wr, Wr **bad) {
  for (; wr; wr = wr->next) {
    const bool has_elements = can_be_read(wr, sizeof *wr);
    if (has_elements && (wr->num_sge <= 0 || can_be_read(wr->sg_list, sizeof *wr->sg_list)))
      continue;
    report_unreadable(call, queue, has_elements ? "sg_list" : "a request, or next of the last one,",
                      has_elements ? static_cast<const void *>(wr->sg_list) : wr);
    if (bad)
      *bad = wr;
    return true;
  }
  return false;
}

} // namespace lint

// SPDX-License-Identifier: MIT
// One form for the work requests of both interfaces: the lists of ibv_post_send(), and what
// ibv_wr_*() builds.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/types.h>
#include <vector>

namespace preload {

// A work request of a send queue.
struct Request {
  std::uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = 0;
  int sge_count = 0; // as the program gave it
  // Elements; none if the list has more than the queue takes. Inline data have lkey 0.
  std::vector<ibv_sge> sges;
  std::uint64_t length = 0;
  __be32 imm_data = 0;
  std::uint64_t remote_addr = 0;
  std::uint32_t rkey = 0; // key of the peer's memory, or the one to bind or to invalidate
  std::uint64_t compare_add = 0, swap = 0;
  const ibv_ah *ah = nullptr;          // UD
  std::uint32_t dest_qp = 0, qkey = 0; // UD
};

// The elements of a work request. A provider refuses more of them than the queue was made for,
// without looking at them; so they may be anything.
template <typename Wr> std::span<const ibv_sge> elements(const Wr &wr, std::uint32_t max_sge) {
  if (wr.num_sge <= 0 || static_cast<std::uint32_t>(wr.num_sge) > max_sge)
    return {};
  return {wr.sg_list, static_cast<std::size_t>(wr.num_sge)};
}

Request request_of(const ibv_qp *qp, const ibv_send_wr &wr, std::uint32_t max_sge);

// The requests that a program builds between ibv_wr_start() and ibv_wr_complete(), which exclude
// other threads.
struct Builder {
  ibv_qp_ex original{}; // for its function pointers
  // Called at ibv_wr_complete(); it calls the real one.
  int (*complete)(ibv_qp_ex *qp, const Builder &built) = nullptr;
  std::vector<Request> requests;
  pid_t thread = 0; // thread that has called ibv_wr_start()
};

// Puts this library in front of the functions that build the requests of a queue pair.
void replace_builders(ibv_qp *qp, decltype(Builder::complete) complete);

} // namespace preload

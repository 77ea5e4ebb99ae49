// SPDX-License-Identifier: MIT
#include "rdmacommon/requests.hpp"

#include <string>
#include <thread>

namespace rdmacommon {

ibv_sge piece(const ibv_mr *mr, const void *address, size_t length) {
  return {.addr = reinterpret_cast<uintptr_t>(address),
          .length = static_cast<uint32_t>(length),
          .lkey = mr->lkey};
}

void post_send(ibv_qp *qp, ibv_send_wr request, Where where) {
  ibv_send_wr *refused = nullptr;
  check_rc(ibv_post_send(qp, &request, &refused), "ibv_post_send", where);
}

void post_recv(ibv_qp *qp, ibv_recv_wr request, Where where) {
  ibv_recv_wr *refused = nullptr;
  check_rc(ibv_post_recv(qp, &request, &refused), "ibv_post_recv", where);
}

void post_srq_recv(ibv_srq *srq, ibv_recv_wr request, Where where) {
  ibv_recv_wr *refused = nullptr;
  check_rc(ibv_post_srq_recv(srq, &request, &refused), "ibv_post_srq_recv", where);
}

ibv_wc wait_for_completion(ibv_cq *cq, const char *what, std::chrono::seconds timeout,
                           Where where) {
  const auto completion = poll_within(cq, timeout, where);
  if (!completion)
    throw Error(what, "no completion within " + std::to_string(timeout.count()) + " s", "", where);
  check_wc(*completion, what, where);
  return *completion;
}

std::optional<ibv_wc> poll_within(ibv_cq *cq, std::chrono::milliseconds limit, Where where) {
  constexpr std::chrono::milliseconds busy{10}, pause{1};
  const auto began = std::chrono::steady_clock::now();
  ibv_wc completion{};
  while (check_count(ibv_poll_cq(cq, 1, &completion), "ibv_poll_cq", where) == 0) {
    const auto waited = std::chrono::steady_clock::now() - began;
    if (waited >= limit)
      return std::nullopt;
    if (waited >= busy)
      std::this_thread::sleep_for(pause); // the CQ may have no channel, and then no event
  }
  return completion;
}

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// The ways in which a program can send `burst` messages and learn that all of them are done.
#pragma once

#include "epoll_sleep.hpp"

#include <array>

inline void wait_for_each(const Side &side) {
  for (int i = 0; i < burst; ++i) {
    side.send(IBV_SEND_SIGNALED);
    side.wait_sent();
  }
}

inline void signal_all(const Side &side) {
  for (int i = 0; i < burst; ++i)
    side.send(IBV_SEND_SIGNALED);
  for (int i = 0; i < burst; ++i)
    side.wait_sent();
}

inline unsigned last_signaled(int i) {
  return i == burst - 1 ? IBV_SEND_SIGNALED : 0;
}

inline void signal_last(const Side &side) {
  for (int i = 0; i < burst; ++i)
    side.send(last_signaled(i));
  side.wait_sent(); // the requests of a queue complete in their order
}

inline void post_list(const Side &side) {
  std::array<ibv_send_wr, burst> requests{};
  for (int i = 0; i < burst; ++i)
    requests[i] = {.next = i + 1 < burst ? &requests[i + 1] : nullptr,
                   .opcode = IBV_WR_SEND,
                   .send_flags = last_signaled(i)};
  rdmacommon::post_send(side.qp, requests[0]);
  side.wait_sent();
}

// [builders]
// Between start and complete, the program builds requests directly in the queue. complete hands all
// of them to the NIC.
inline void build(const Side &side, int messages) {
  ibv_qp_ex *qp = ibv_qp_to_qp_ex(side.qp);
  ibv_wr_start(qp);
  for (int i = 0; i < messages; ++i) {
    qp->wr_id = static_cast<uint64_t>(i); // it and the flags are for the next request
    qp->wr_flags = i == messages - 1 ? IBV_SEND_SIGNALED : 0;
    ibv_wr_send(qp);
  }
  rdmacommon::check_rc(ibv_wr_complete(qp), "ibv_wr_complete");
}
// [builders]

inline void build_burst(const Side &side) {
  build(side, burst);
  side.wait_sent();
}

// SPDX-License-Identifier: MIT
// A server that learns of each message takes the completion of a receive, posts another receive,
// and gives the client a credit for one more message.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/work_queues.hpp>

#include <infiniband/verbs.h>
#include <sched.h>

#include <arpa/inet.h>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

// @throws Error if the request failed: then the completion has no opcode
inline bool is_receive(const ibv_wc &wc) {
  rdmacommon::check_wc(wc, "a request or a receive");
  return (wc.opcode & IBV_WC_RECV) != 0;
}

// Receives for immediate data, on either side; and how many messages may still be sent.
class Credits {
public:
  // Posts `depth` receives: as many messages may be under way.
  Credits(ibv_qp *qp, uint32_t depth) : qp_(qp), depth_(depth), left_(depth) {
    for (uint32_t i = 0; i < depth; ++i)
      post_receive();
  }

  uint32_t left() const { return left_; }
  void use(uint32_t messages) { left_ -= messages; }

  // Takes the completion of a receive. Its immediate is a credit for so many messages; 0 from a
  // client, which gives none.
  // @throws Error if that cannot be
  void take(const ibv_wc &wc) {
    post_receive(); // before the peer can send another
    const uint32_t messages = ntohl(wc.imm_data);
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || messages > depth_ - left_)
      throw rdmacommon::Error("the peer's message",
                              "it gives credit for messages that were not sent");
    left_ += messages;
  }

private:
  void post_receive() {
    // WRITE_WITH_IMM takes a receive, and none of its memory.
    ibv_recv_wr nothing{}, *refused = nullptr;
    rdmacommon::check_rc(ibv_post_recv(qp_, &nothing, &refused), "ibv_post_recv");
  }

  ibv_qp *qp_;
  const uint32_t depth_;
  uint32_t left_;
};

// Looks at a CQ without a completion, before another thread may have the CPU (SoftRoCE needs one)
// and before it asks whether the peer has ended.
constexpr uint32_t looks = 1000;

// The server's loop, until the client says that it is done. The server gives credit when a quarter
// of the receives have been used, or when nothing more has come: so credits cost little, and the
// client never waits for one that could have been sent.
inline void give_credits(ibv_cq *cq, ibv_qp *qp, Credits &credits, uint32_t depth,
                         const rdmacommon::Exchange &exchange) {
  rdmacommon::SendQueue queue(qp, depth);
  ibv_send_wr credit{.opcode = IBV_WR_RDMA_WRITE_WITH_IMM}; // carries no bytes
  std::array<ibv_wc, 64> done;
  uint32_t owed = 0, idle = 0;
  while (true) {
    const size_t count = rdmacommon::poll_batch(cq, done);
    for (const ibv_wc &wc : std::span(done).first(count))
      if (is_receive(wc)) {
        credits.take(wc);
        ++owed;
      } else
        queue.completed(wc);
    if ((owed >= depth / 4 || (count == 0 && owed > 0)) && queue.room() > 0) {
      credit.imm_data = htonl(owed);
      queue.add(credit);
      queue.post();
      owed = 0;
    }
    idle = count == 0 ? idle + 1 : 0;
    if (idle >= looks) {
      idle = 0;
      sched_yield();
      if (exchange.can_receive())
        return;
    }
  }
}

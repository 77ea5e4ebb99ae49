// SPDX-License-Identifier: MIT
// The connection of 22_credits: its objects, the slots, one request for a run, and sleeping.
// Lesson 21 has written out all of it but the last.
#pragma once

#include "credit_callers.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

// [shape]
constexpr uint32_t slot_count = 64; // a power of two
constexpr uint32_t runs_ahead = 8;  // runs that one side may send before the other has taken them
using Slots = std::array<Message, slot_count>;
// [shape]

class Connection {
public:
  Connection(const rdmacommon::Port &port, rdmacommon::Exchange &exchange,
             const rdmacommon::PairOptions &options)
      : exchange_(exchange), timeout_(options.is_server() ? options.wait : options.timeout),
        pd_(rdmacommon::alloc_pd(port.context.get())),
        out_mr_(rdmacommon::reg_mr(pd_.get(), &out, sizeof out, 0)),
        in_mr_(rdmacommon::reg_mr(pd_.get(), &in, sizeof in,
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
        channel_(rdmacommon::create_comp_channel(port.context.get())),
        cq_(rdmacommon::create_cq(port.context.get(), sends + receives, channel_.get())),
        qp_(rdmacommon::create_rc_qp(
            pd_.get(), cq_.get(),
            {.max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1})) {
    rdmacommon::to_init(qp_.get(), port, IBV_ACCESS_REMOTE_WRITE);
    for (uint32_t i = 0; i < receives; ++i)
      post_receive();
    theirs_ =
        rdmacommon::connect(qp_.get(), port, exchange, options, rdmacommon::share(in_mr_.get()));
    if (theirs_.length != sizeof in)
      refuse("the peer's memory", "its size is not that of ours");
  }

  // A credit covers at least one run that is under way. So there are at most as many credits as
  // runs.
  // [depths]
  static constexpr uint32_t receives = 2 * runs_ahead;
  static constexpr uint32_t sends = 2 * runs_ahead;
  // [depths]

  Slots out{}, in{}; // for our messages, and for the peer's

  void post_receive() { rdmacommon::post_recv(qp_.get(), {}); }

  // Sends the slots of a run; if there are none, only the immediate data.
  void send(rdmacommon::Run run) {
    const size_t offset = run.first * sizeof(Message), length = run.count * sizeof(Message);
    ibv_send_wr request{.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                        .send_flags = IBV_SEND_SIGNALED,
                        .imm_data = rdmacommon::to_immediate(run)};
    ibv_sge from{};
    if (run.count > 0) {
      from = rdmacommon::piece(out_mr_.get(), &out[run.first], length);
      request.sg_list = &from;
      request.num_sge = 1;
      request.wr.rdma = {.remote_addr = theirs_.address + offset, .rkey = theirs_.rkey};
    }
    rdmacommon::post_send(qp_.get(), request);
  }

  // Sleeps for two things: something has completed, or the peer has finished or is gone.
  // @return how many have completed; 0 if the peer will send nothing more
  size_t wait(std::span<ibv_wc> into) {
    for (bool is_over = false;; is_over = sleep()) {
      if (const size_t count = rdmacommon::poll_batch(cq_.get(), into); count > 0 || is_over)
        return count;
      rdmacommon::check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
      if (const size_t count = rdmacommon::poll_batch(cq_.get(), into)) // before it was armed
        return count;
    }
  }

private:
  // [wait]
  // @return whether the peer has closed its end of the exchange
  bool sleep() {
    std::array<pollfd, 2> both{{{.fd = channel_->fd, .events = POLLIN, .revents = 0},
                                {.fd = exchange_.fd(), .events = POLLIN, .revents = 0}}};
    const auto limit = static_cast<int>(timeout_.count());
    if (rdmacommon::check_errno(poll(both.data(), both.size(), limit), "poll") == 0)
      refuse("a run or a credit", "none has come in time");
    while (rdmacommon::take_event(channel_.get()) != nullptr)
      ;
    return both[1].revents != 0;
  }
  // [wait]

  rdmacommon::Exchange &exchange_;
  const std::chrono::milliseconds timeout_;
  rdmacommon::unique_pd pd_;
  rdmacommon::unique_mr out_mr_, in_mr_;
  rdmacommon::unique_comp_channel channel_;
  rdmacommon::unique_cq cq_;
  rdmacommon::unique_qp qp_;
  rdmacommon::RemoteMemory theirs_{};
};

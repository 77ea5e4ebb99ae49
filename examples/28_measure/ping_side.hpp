// SPDX-License-Identifier: MIT
// The common part of client and server of measure.cpp: a queue pair, a buffer in each direction,
// and the four ways to send a message and to learn of one.
#pragma once

#include "operations.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/work_queues.hpp>

#include <infiniband/verbs.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

struct PingSettings {
  Operation operation = Operation::write;
  uint32_t size = 64;
  bool is_polling = true;
  uint32_t max_inline = 128; // bytes of the largest message that goes inline
};

class PingSide {
public:
  PingSide(const rdmacommon::Port &port, rdmacommon::Exchange &exchange,
           const rdmacommon::PairOptions &options, const PingSettings &ping)
      : ping_(ping), timeout_(options.timeout), memory_(stride() + ping.size),
        pd_(rdmacommon::alloc_pd(port.context.get())),
        mr_(rdmacommon::reg_mr(pd_.get(), memory_.data(), memory_.size(), memory_access)),
        channel_(rdmacommon::create_comp_channel(port.context.get())),
        sent_(create_cq(port, ping.operation == Operation::read)),
        received_(create_cq(port, ping.operation != Operation::read)),
        qp_(rdmacommon::create_rc_qp(pd_.get(), sent_.get(), received_.get(),
                                     {.max_send_wr = depth,
                                      .max_recv_wr = depth,
                                      .max_send_sge = 1,
                                      .max_recv_sge = 1,
                                      .max_inline_data = ping.max_inline})),
        queue_(qp_.get(), depth) {
    rdmacommon::to_init(qp_.get(), port, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    for (uint32_t i = 0; i < depth; ++i)
      post_receive();
    theirs_ = rdmacommon::connect(qp_.get(), port, exchange, options, rdmacommon::share(mr_.get()));
    if (theirs_.length != memory_.size())
      throw rdmacommon::Error("the peer's memory", "it has another --size");
  }

  // [ask]
  // The client's round: one message to the server, and one back. Rounds count from 1.
  void ask(uint32_t round) {
    if (ping_.operation == Operation::read)
      return read();
    send(round);
    receive(round);
  }

  void send(uint32_t round) {
    while (queue_.room() == 0)
      take_sent();
    // The last byte tells a peer that polls its memory that this is another message. The one before
    // has been answered, so nothing is on its way from here, even if no completion was requested
    // for it.
    out().back() = std::byte(round);
    // [ask]
    ibv_sge piece = rdmacommon::piece(mr_.get(), out().data(), ping_.size);
    ibv_send_wr request{.sg_list = &piece, .num_sge = 1};
    if (ping_.size <= ping_.max_inline)
      request.send_flags = IBV_SEND_INLINE;
    if (ping_.operation == Operation::send)
      request.opcode = IBV_WR_SEND;
    else {
      request.opcode =
          ping_.operation == Operation::write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
      request.wr.rdma = {.remote_addr = theirs_.address, .rkey = theirs_.rkey};
    }
    queue_.add(request); // one in 32 asks for a completion
    queue_.post();
    if (round > 1 && ping_.operation != Operation::write)
      post_receive(); // for the last one; there are more, and now there is nothing else to do
  }

  // [receive]
  void receive(uint32_t round) {
    if (ping_.operation == Operation::write)
      return spin([&] { return last_byte() == std::byte(round); });
    ibv_wc done{};
    wait(received_.get(), done);
    if (done.status != IBV_WC_SUCCESS)
      take_sent(); // if one of ours has failed, that is the reason
    rdmacommon::check_wc(done, "the peer's message");
  }
  // [receive]

  // Returns true if this device promises that the last byte of a WRITE comes last. On mlx5, only a
  // QP in RTS has an answer.
  bool is_in_order() const {
    return ibv_query_qp_data_in_order(qp_.get(), IBV_WR_RDMA_WRITE, 0) == 1;
  }

private:
  static constexpr uint32_t depth = 64;
  static constexpr int memory_access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

  rdmacommon::unique_cq create_cq(const rdmacommon::Port &port, bool is_waited_for) {
    ibv_comp_channel *channel = is_waited_for ? channel_.get() : nullptr;
    return rdmacommon::create_cq(port.context.get(), depth, channel);
  }

  // The peer writes to the beginning; what we send lies behind it, on a page of its own, and the
  // peer may read it. Else the two could have a cache line in common, which CPU and NIC would take
  // from each other.
  size_t stride() const { return (size_t{ping_.size} + 4095) / 4096 * 4096; }
  std::span<std::byte> in() { return std::span(memory_).first(ping_.size); }
  std::span<std::byte> out() { return std::span(memory_).subspan(stride(), ping_.size); }

  void post_receive() {
    ibv_sge piece = rdmacommon::piece(mr_.get(), in().data(), ping_.size);
    rdmacommon::post_recv(qp_.get(), {.sg_list = &piece, .num_sge = 1});
  }

  void read() {
    ibv_sge piece = rdmacommon::piece(mr_.get(), in().data(), ping_.size);
    queue_.add({.sg_list = &piece,
                .num_sge = 1,
                .opcode = IBV_WR_RDMA_READ,
                .send_flags = IBV_SEND_SIGNALED,
                .wr = {.rdma = {.remote_addr = theirs_.address + stride(), .rkey = theirs_.rkey}}});
    queue_.post();
    ibv_wc done{};
    wait(sent_.get(), done);
    queue_.completed(done);
  }

  void wait(ibv_cq *cq, ibv_wc &done) {
    if (ping_.is_polling)
      spin([&] { return rdmacommon::poll_batch(cq, {&done, 1}) == 1; });
    else
      rdmacommon::wait_for_completions(cq, {&done, 1}, "the peer's message", timeout_);
  }

  // The NIC writes here while we look. The atomic load tells that to the compiler.
  std::byte last_byte() { return std::atomic_ref(in().back()).load(std::memory_order_acquire); }

  // Looks until it is so. A NIC answers within the first looks, which cost nothing else. SoftRoCE
  // takes longer, and needs a CPU itself: the threads that do its work run in the kernel.
  template <typename IsSo> void spin(IsSo is_so) {
    std::optional<std::chrono::steady_clock::time_point> end; // from the first look at the clock on
    while (true) {
      for (int looks = 0; looks < 1000; ++looks)
        if (is_so())
          return;
      sched_yield();
      const auto now = std::chrono::steady_clock::now();
      if (now > end.value_or(now)) {
        take_sent(); // if one of ours has failed, that is the reason
        throw rdmacommon::Error("the peer's message",
                                "none within " + std::to_string(timeout_.count()) + " ms");
      }
      end = end.value_or(now + timeout_);
    }
  }

  void take_sent() {
    ibv_wc done{};
    while (rdmacommon::poll_batch(sent_.get(), {&done, 1}) == 1)
      queue_.completed(done); // throws if it has failed
  }

  const PingSettings ping_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::byte> memory_;
  rdmacommon::unique_pd pd_;
  rdmacommon::unique_mr mr_;
  rdmacommon::unique_comp_channel channel_;
  rdmacommon::unique_cq sent_, received_;
  rdmacommon::unique_qp qp_;
  rdmacommon::SendQueue queue_;
  rdmacommon::RemoteMemory theirs_{};
};

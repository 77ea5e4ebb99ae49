// SPDX-License-Identifier: MIT
// What client and server of 21_group_send both have: one connection, both of its queues, and the
// slots.
#pragma once

#include "group_protocol.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <span>

// [side]
class Side {
public:
  // Connects. `slots` are the slots of the client's ring, or the server's mirror of them.
  Side(const rdmacommon::Port &port, rdmacommon::Exchange &exchange,
       const rdmacommon::PairOptions &options, const Settings &settings, std::span<std::byte> slots)
      : runs(max_runs(settings.shape)), pd(rdmacommon::alloc_pd(port.context.get())),
        mr(rdmacommon::reg_mr(pd.get(), slots.data(), slots.size(),
                              options.is_server() ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                                                  : 0)),
        channel(rdmacommon::create_comp_channel(port.context.get())),
        cq(rdmacommon::create_cq(port.context.get(), static_cast<int>(2 * runs), channel.get())),
        qp(rdmacommon::create_rc_qp(pd.get(), cq.get(),
                                    {.max_send_wr = runs,
                                     .max_recv_wr = runs,
                                     .max_send_sge = 1,
                                     .max_inline_data = max_inline})),
        queue(qp.get(), runs), spin_(settings.spin), timeout_(options.timeout),
        exchange_(exchange) {
    // No peer can access the client's memory. But a credit is a WRITE without data, which the
    // client's queue pair must allow.
    rdmacommon::to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
    receives.emplace(qp.get(), runs, settings.shape.slots); // before the peer learns where we are
    const rdmacommon::RemoteMemory theirs =
        rdmacommon::connect(qp.get(), port, exchange, options, rdmacommon::share(mr.get()));
    if (theirs.length != slots.size())
      throw rdmacommon::Error("the peer's memory", "its size is not that of ours");
    mirror = {.mine = mr.get(),
              .slot_size = settings.shape.slot_size,
              .address = theirs.address,
              .rkey = theirs.rkey,
              .max_inline = max_inline};
  }

  const uint32_t runs; // that may be under way, in each direction
  rdmacommon::unique_pd pd;
  rdmacommon::unique_mr mr;
  rdmacommon::unique_comp_channel channel;
  rdmacommon::unique_cq cq; // of both queues, so that one event reports both
  rdmacommon::unique_qp qp;
  rdmacommon::SendQueue queue;
  std::optional<rdmacommon::RunReceiver> receives;
  rdmacommon::SlotMirror mirror{};

  // Waits until there are completions, and takes them. Looks `spin_` times before it goes to sleep,
  // since a wake costs time on both sides; then poll, arm, poll, as in lesson 06.
  size_t wait(std::span<ibv_wc> into) {
    for (bool is_there = true;; is_there = sleep()) {
      for (uint32_t looks = 0; looks <= spin_; ++looks)
        if (const size_t count = rdmacommon::poll_batch(cq.get(), into))
          return count;
      if (!is_there)
        gone();
      rdmacommon::check_rc(ibv_req_notify_cq(cq.get(), 0), "ibv_req_notify_cq");
      if (const size_t count = rdmacommon::poll_batch(cq.get(), into))
        return count;
    }
  }

  // Sleeps until the CQ, which is armed, has an event, or `other` is readable.
  // @return false if the peer will send nothing any more; what it has sent may still be in the CQ
  bool sleep(int other = -1) {
    std::array<pollfd, 3> files{{{.fd = channel->fd, .events = POLLIN, .revents = 0},
                                 {.fd = exchange_.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = other, .events = POLLIN, .revents = 0}}}; // -1 is ignored
    const auto limit = std::chrono::milliseconds(timeout_).count();
    const int count = poll(files.data(), files.size(), static_cast<int>(limit));
    if (count < 0 && errno != EINTR)
      rdmacommon::throw_errno(errno, "poll");
    if (count == 0)
      throw rdmacommon::Error("the peer", "nothing has come from it in time");
    while (rdmacommon::take_event(channel.get()) != nullptr)
      ;
    return count < 0 || files[1].revents == 0;
  }

  [[noreturn]] static void gone() { throw rdmacommon::Error("the peer", "it is gone"); }

private:
  static constexpr uint32_t max_inline = 128;
  const uint32_t spin_;
  std::chrono::milliseconds timeout_;
  rdmacommon::Exchange
      &exchange_; // carries nothing before the end of the program, but closes if the peer dies
};
// [side]

// SPDX-License-Identifier: MIT
// One end of a connection of own_connections.cpp, on either side.
#pragma once

#include "looks.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/work_queues.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <arpa/inet.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

constexpr uint32_t slots = 64, slot_size = 64; // slots of each direction, and bytes of a slot
constexpr uint32_t send_depth = 4 * slots;
constexpr uint32_t max_requests = slots + send_depth; // requests that are posted at a time

// [end]
// One end of a connection. A request and its response have the same slot on both sides, and its
// number is the immediate.
class OwnConnection {
public:
  // @param cq with room for max_requests
  OwnConnection(rdma_cm_id *id, ibv_cq *cq)
      : pd_(rdmacommon::alloc_pd(id->verbs)),
        out_mr_(rdmacommon::reg_mr(pd_.get(), out_.data(), out_.size(), 0)),
        in_mr_(rdmacommon::reg_mr(pd_.get(), in_.data(), in_.size(),
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
        qp_(rdmacommon::create_cm_qp(id, pd_.get(), cq,
                                     {.max_send_wr = send_depth,
                                      .max_recv_wr = slots,
                                      .max_send_sge = 1,
                                      .max_recv_sge = 1,
                                      .max_inline_data = slot_size})),
        queue(id->qp, send_depth), receives(id->qp, slots) {}

  rdmacommon::Description description() const { return rdmacommon::describe(in_mr_.get()); }
  void set_peer(const rdma_conn_param &came) {
    rdmacommon::Description theirs{};
    if (came.private_data == nullptr || came.private_data_len < sizeof theirs)
      throw rdmacommon::Error("the peer", "it does not say where its memory is");
    std::memcpy(&theirs, came.private_data, sizeof theirs); // behind it are zeros
    const rdmacommon::RemoteMemory memory = rdmacommon::parse_description(theirs, sizeof theirs);
    if (memory.length != in_.size())
      throw rdmacommon::Error("the peer", "it has other slots");
    theirs_ = memory;
  }

  std::span<std::byte> out(uint32_t slot) { return std::span(out_).subspan(slot * slot_size); }
  std::span<std::byte> in(uint32_t slot) { return std::span(in_).subspan(slot * slot_size); }
  // The slot that a WRITE has gone into, as the peer says.
  uint32_t slot_of(const ibv_wc &wc) {
    const uint32_t slot = ntohl(receives.received(wc));
    if (slot >= slots)
      throw rdmacommon::Error("the peer", "there is no slot " + std::to_string(slot));
    return slot;
  }
  // Adds the WRITE of a slot to those that go with the next queue.post().
  void add(uint32_t slot, size_t length) {
    ibv_sge from = rdmacommon::piece(out_mr_.get(), out(slot).data(), length);
    queue.add({.sg_list = &from,
               .num_sge = 1,
               .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
               .send_flags = IBV_SEND_INLINE,
               .imm_data = htonl(slot),
               .wr = {.rdma = {.remote_addr = theirs_.address + slot * slot_size,
                               .rkey = theirs_.rkey}}});
  }

private:
  std::vector<std::byte> out_ = std::vector<std::byte>(size_t{slots} * slot_size), in_ = out_;
  rdmacommon::unique_pd pd_;
  rdmacommon::unique_mr out_mr_, in_mr_;
  rdmacommon::unique_cm_qp qp_;
  rdmacommon::RemoteMemory theirs_{};

public:
  rdmacommon::SendQueue queue;
  rdmacommon::ReceiveQueue receives;
};

inline rdma_conn_param parameters(const rdmacommon::Description &mine) {
  return {.private_data = &mine,
          .private_data_len = sizeof mine,
          .retry_count = 6,
          .rnr_retry_count = 0};
}

// The completion queue of one side, and how its thread sleeps.
class Completions {
public:
  // @param connections as many as can share the queue
  Completions(ibv_context *device, uint32_t connections, Looks &looks)
      : looks_(looks), channel_(rdmacommon::create_comp_channel(device)),
        cq_(rdmacommon::create_cq(device, static_cast<int>(connections * max_requests),
                                  channel_.get())) {}

  ibv_cq *get() const { return cq_.get(); }

  // @return what has completed; valid until the next call. If that is nothing, the queue is armed:
  //         call sleep().
  std::span<const ibv_wc> take() {
    size_t count = rdmacommon::poll_batch(cq_.get(), done_);
    const auto is_something_there = [&] {
      count = rdmacommon::poll_batch(cq_.get(), done_);
      return count > 0;
    };
    if (count == 0 && !looks_.find(is_something_there) && !std::exchange(is_armed_, true)) {
      rdmacommon::check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
      count = rdmacommon::poll_batch(cq_.get(), done_); // no event reports what completed before
    }
    return std::span(done_).first(count);
  }

  // Sleeps until something has completed, or `other` is readable.
  // @return whether `other` is readable
  // @throws Error if nothing happens in time
  bool sleep(int other, std::chrono::seconds limit, const char *what) {
    std::array<pollfd, 2> files{{{.fd = channel_->fd, .events = POLLIN, .revents = 0},
                                 {.fd = other, .events = POLLIN, .revents = 0}}};
    const auto ms = std::chrono::milliseconds(limit).count();
    if (rdmacommon::check_errno(poll(files.data(), files.size(), static_cast<int>(ms)), "poll") ==
        0)
      throw rdmacommon::Error(what, "nothing has come in time");
    // There is one queue, which was armed once. So the channel has one event at most.
    if (files[0].revents != 0 && rdmacommon::take_event(channel_.get()) != nullptr)
      is_armed_ = false;
    return files[1].revents != 0;
  }

private:
  Looks &looks_;
  rdmacommon::unique_comp_channel channel_;
  rdmacommon::unique_cq cq_;
  bool is_armed_ = false;
  std::array<ibv_wc, 64> done_{};
};
// [end]

// One end of a connection of own_connections.cpp, on either side.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace shared_client {

constexpr uint32_t slots = 64, slot_size = 64; // of a connection, in each direction
constexpr uint32_t send_depth = 4 * slots;
constexpr uint32_t most_requests = slots + send_depth; // that are posted at a time

// [end]
// One end of a connection. A request and its response have the same slot on both sides, and its number is the immediate.
class End {
public:
  // @param cq with room for most_requests
  End(rdma_cm_id *id, ibv_cq *cq)
      : pd_(rdmacommon::check_ptr(ibv_alloc_pd(id->verbs), "ibv_alloc_pd")),
        out_mr_(rdmacommon::check_ptr(ibv_reg_mr(pd_.get(), out_.data(), out_.size(), 0),
                                      "ibv_reg_mr")),
        in_mr_(rdmacommon::check_ptr(ibv_reg_mr(pd_.get(), in_.data(), in_.size(),
                                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                                     "ibv_reg_mr")),
        qp_(rdmacommon::create_cm_qp(id, pd_.get(), cq,
                                     {.max_send_wr = send_depth,
                                      .max_recv_wr = slots,
                                      .max_send_sge = 1,
                                      .max_recv_sge = 1,
                                      .max_inline_data = slot_size})),
        queue(id->qp, send_depth), receiver(id->qp, slots, slots) {}

  rdmacommon::Description description() const { return rdmacommon::describe(in_mr_.get()); }
  void set_peer(const rdma_conn_param &came) {
    rdmacommon::Description theirs{};
    if (came.private_data == nullptr || came.private_data_len < sizeof theirs)
      throw rdmacommon::Error("the peer", "it does not say where its memory is",
                              rdmacommon::Where::here());
    std::memcpy(&theirs, came.private_data, sizeof theirs); // behind it are zeros
    const rdmacommon::RemoteMemory memory = rdmacommon::described(theirs, sizeof theirs);
    if (memory.length != in_.size())
      throw rdmacommon::Error("the peer", "it has other slots", rdmacommon::Where::here());
    mirror_ = {.mine = out_mr_.get(),
               .slot_size = slot_size,
               .address = memory.address,
               .rkey = memory.rkey,
               .most_inline = slot_size};
  }

  std::span<std::byte> out(uint32_t slot) { return std::span(out_).subspan(slot * slot_size); }
  std::span<std::byte> in(uint32_t slot) { return std::span(in_).subspan(slot * slot_size); }
  // To go with the next queue.post().
  void add(uint32_t slot, size_t length) {
    rdmacommon::add_run(queue, mirror_, {.first = slot, .count = 1}, static_cast<uint32_t>(length));
  }

private:
  std::vector<std::byte> out_ = std::vector<std::byte>(size_t{slots} * slot_size), in_ = out_;
  rdmacommon::unique_pd pd_;
  rdmacommon::unique_mr out_mr_, in_mr_;
  rdmacommon::unique_cm_qp qp_;
  rdmacommon::SlotMirror mirror_{};

public:
  rdmacommon::SendQueue queue;
  rdmacommon::RunReceiver receiver;
};

inline rdma_conn_param parameters(const rdmacommon::Description &mine) {
  return {.private_data = &mine,
          .private_data_len = sizeof mine,
          .retry_count = 6,
          .rnr_retry_count = 0};
}

inline ibv_cq *new_cq(ibv_context *device, ibv_comp_channel *channel, uint32_t connections) {
  return rdmacommon::check_ptr(
      ibv_create_cq(device, static_cast<int>(connections * most_requests), nullptr, channel, 0),
      "ibv_create_cq");
}

// Sleeps until the channel's CQ, which is armed, has an event, or `other` is readable. @return false if time is up
inline bool sleep(ibv_comp_channel *channel, int other, std::chrono::seconds limit) {
  std::array<pollfd, 2> files{{{.fd = channel->fd, .events = POLLIN, .revents = 0},
                               {.fd = other, .events = POLLIN, .revents = 0}}};
  const auto ms = std::chrono::milliseconds(limit).count();
  const int count =
      rdmacommon::check_errno(poll(files.data(), files.size(), static_cast<int>(ms)), "poll");
  while (rdmacommon::take_event(channel) != nullptr)
    ;
  return count > 0;
}
// [end]

} // namespace shared_client

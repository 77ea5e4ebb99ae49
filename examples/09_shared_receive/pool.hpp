// SPDX-License-Identifier: MIT
// The receive pool of 09_shared_receive: buffers, and the shared receive queue that they are posted
// to.
#pragma once

#include "numbered.hpp"

#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <vector>

// Makes a receive queue that belongs to no queue pair, for `size` receives of one piece of memory.
inline rdmacommon::unique_srq create_srq(ibv_pd *pd, uint32_t size) {
  ibv_device_attr device{};
  rdmacommon::check_rc(ibv_query_device(pd->context, &device), "ibv_query_device");
  if (device.max_srq == 0)
    throw rdmacommon::Unsupported("this device has no shared receive queues (max_srq is 0)");
  // [create-srq]
  ibv_srq_init_attr attr{.attr = {.max_wr = size, .max_sge = 1}};
  return rdmacommon::unique_srq(rdmacommon::check_ptr(ibv_create_srq(pd, &attr), "ibv_create_srq"));
  // [create-srq]
}

// [create-qp]
inline rdmacommon::unique_qp create_qp(ibv_pd *pd, ibv_cq *cq, ibv_srq *srq, uint32_t sends) {
  ibv_qp_init_attr attr{.send_cq = cq,
                        .recv_cq = cq, // the receives that this QP takes complete here
                        .srq = srq,    // instead of a receive queue of its own
                        .cap = {.max_send_wr = sends, .max_send_sge = 1},
                        .qp_type = IBV_QPT_RC};
  return rdmacommon::unique_qp(rdmacommon::check_ptr(ibv_create_qp(pd, &attr), "ibv_create_qp"));
}
// [create-qp]

class Pool {
public:
  Pool(ibv_pd *pd, uint32_t size, uint32_t limit)
      : limit_(limit), buffers_(size),
        mr_(rdmacommon::reg_mr(pd, buffers_.data(), size * sizeof(Message), access)),
        srq_(create_srq(pd, size)) {
    for (uint32_t i = 0; i < size; ++i)
      put_back(i);
  }

  ibv_srq *srq() const { return srq_.get(); }
  uint32_t limit() const { return limit_; }

  // The message in the buffer of the receive `wr_id`. It is ours until the next refill().
  const Message &operator[](uint64_t wr_id) const { return buffers_.at(wr_id); }
  void put_back(uint64_t wr_id) { free_.push_back(wr_id); }

  // Arms the limit, and then posts all free buffers. In the other order, messages could empty the
  // queue before the limit is armed, and no event would come.
  // [refill]
  size_t refill() {
    ibv_srq_attr attr{.srq_limit = limit_};
    rdmacommon::check_rc(ibv_modify_srq(srq_.get(), &attr, IBV_SRQ_LIMIT), "ibv_modify_srq(LIMIT)");
    const size_t count = free_.size();
    for (const uint64_t wr_id : free_) {
      ibv_sge sge = rdmacommon::piece(mr_.get(), &buffers_[wr_id], sizeof(Message));
      rdmacommon::post_srq_recv(srq_.get(), {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1});
    }
    free_.clear();
    return count;
  }
  // [refill]

private:
  static constexpr int access = IBV_ACCESS_LOCAL_WRITE;

  uint32_t limit_;
  std::vector<Message> buffers_;
  std::vector<uint64_t> free_; // neither posted nor in use
  rdmacommon::unique_mr mr_;
  rdmacommon::unique_srq srq_;
};

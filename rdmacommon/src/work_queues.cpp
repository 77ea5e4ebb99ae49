// SPDX-License-Identifier: MIT
#include "rdmacommon/work_queues.hpp"

#include <algorithm>

namespace rdmacommon {

// ---- the send queue

SendQueue::SendQueue(ibv_qp *qp, uint32_t depth)
    : qp_(qp), depth_(depth), signal_every_(std::max(depth / 2, 1U)) {
  if (depth == 0)
    throw Error("a send queue", "it has no room for a request");
  // All the room that it will ever need: the requests point to each other, and to their pieces.
  requests_.reserve(depth);
  pieces_.reserve(depth);
}

void SendQueue::add(const ibv_send_wr &request, Where where) {
  if (room() == 0)
    throw Error("the send queue", "it is full, since no completion has given a place back", where);
  if (request.num_sge > 1)
    throw Error("the send queue", "a request has more than one SGE", where);
  const bool is_signaled =
      (request.send_flags & IBV_SEND_SIGNALED) != 0 || unsignaled_ + 1 >= signal_every_;
  unsignaled_ = is_signaled ? 0 : unsignaled_ + 1;

  ibv_send_wr &copy = requests_.emplace_back(request);
  copy.wr_id = ++added_;
  copy.next = nullptr;
  if (is_signaled)
    copy.send_flags |= IBV_SEND_SIGNALED;
  if (request.num_sge == 1)
    copy.sg_list = &pieces_.emplace_back(*request.sg_list);
  if (requests_.size() > 1)
    requests_[requests_.size() - 2].next = &copy;
}

void SendQueue::post(Where where) {
  if (requests_.empty())
    return;
  ibv_send_wr *refused = nullptr;
  ++posts_;
  check_rc(ibv_post_send(qp_, requests_.data(), &refused), "ibv_post_send", where);
  posted_ = added_;
  requests_.clear(); // they, and their SGEs, have been read
  pieces_.clear();
}

void SendQueue::completed(const ibv_wc &wc, Where where) {
  check_wc(wc, "a request of the send queue", where);
  if (wc.qp_num != qp_->qp_num || wc.wr_id <= done_ || wc.wr_id > posted_)
    throw Error("a completion", "it belongs to no request of the send queue", where);
  done_ = wc.wr_id; // and with it the unsignaled requests before it
}

// ---- the receive queue

ReceiveQueue::ReceiveQueue(ibv_qp *qp, uint32_t depth) : qp_(qp), used_(depth), chain_(depth) {
  if (depth == 0)
    throw Error("a receive queue", "it has no room for a receive");
  for (size_t i = 0; i + 1 < chain_.size(); ++i)
    chain_[i].next = &chain_[i + 1];
  repost();
}

uint32_t ReceiveQueue::received(const ibv_wc &wc, Where where) {
  check_wc(wc, "a receive", where);
  if (wc.qp_num != qp_->qp_num || used_ == chain_.size())
    throw Error("a completion", "it belongs to no receive of the queue", where);
  ++used_;
  if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
    throw Error("the peer's message", "it is not an RDMA WRITE with immediate data", where);
  return wc.imm_data;
}

// Posts as many of the chain as are needed: cuts it there, and links it again.
bool ReceiveQueue::repost(Where where) {
  if (used_ == 0)
    return false;
  ibv_recv_wr &last = chain_[used_ - 1], *const behind = last.next, *refused = nullptr;
  last.next = nullptr;
  const int rc = ibv_post_recv(qp_, chain_.data(), &refused);
  last.next = behind;
  // [immediate]
  ibv_device *device = qp_->context->device;
  if (rc == -EINVAL && device->transport_type == IBV_TRANSPORT_IWARP) // as siw does
    throw Unsupported(std::string(ibv_get_device_name(device)) +
                      " is an iWARP device without immediate data");
  // [immediate]
  check_rc(rc, "ibv_post_recv", where);
  used_ = 0;
  return true;
}

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// A UD queue pair, as both sides of datagrams.cpp have it.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

// The top bit is 0: Q_Keys with 1 are for the system's own QPs.
constexpr uint32_t our_qkey = 0x08080808;

// The destination of a datagram: a port, by the address handle, and there a QP, which wants to see
// its Q_Key.
struct Destination {
  ibv_ah *ah;
  uint32_t qpn, qkey;
};

// A UD queue pair with its completion queues, and memory for what it receives and sends.
class Datagrams {
public:
  Datagrams(const rdmacommon::Port &port, ibv_pd *pd, uint32_t receives)
      : mtu_(static_cast<size_t>(rdmacommon::mtu_bytes(port.mtu))),
        slot_size_(sizeof(ibv_grh) + mtu_), memory_((receives + 1) * slot_size_),
        mr_(rdmacommon::reg_mr(pd, memory_.data(), memory_.size(), int{IBV_ACCESS_LOCAL_WRITE})),
        sent_(rdmacommon::create_cq(port.context.get(), 1)),
        received_(rdmacommon::create_cq(port.context.get(), static_cast<int>(receives))) {
    // [create]
    ibv_qp_init_attr init{
        .send_cq = sent_.get(),
        .recv_cq = received_.get(),
        .cap = {.max_send_wr = 1, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD};
    qp_.reset(rdmacommon::check_ptr(ibv_create_qp(pd, &init), "ibv_create_qp"));
    // [create]
    // [transitions]
    ibv_qp_attr attr{.qp_state = IBV_QPS_INIT,
                     .qkey = our_qkey, // every datagram must carry it to be let in
                     .pkey_index = 0,
                     .port_num = port.number};
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    rdmacommon::check_rc(ibv_modify_qp(qp_.get(), &attr, mask), "ibv_modify_qp(INIT)");
    for (uint32_t slot = 0; slot < receives; ++slot)
      receive_into(slot);
    attr.qp_state = IBV_QPS_RTR; // nothing to tell: there is no peer
    rdmacommon::check_rc(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE), "ibv_modify_qp(RTR)");
    attr.qp_state = IBV_QPS_RTS; // nothing about giving up: nobody acknowledges
    attr.sq_psn = 0;             // nobody checks it, but the mask wants it
    rdmacommon::check_rc(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_SQ_PSN),
                         "ibv_modify_qp(RTS)");
    // [transitions]
  }

  // A packet to `peer` holds this many bytes: its port may take fewer than ours.
  size_t mtu(const rdmacommon::Endpoint &peer) const {
    return std::min(mtu_, static_cast<size_t>(rdmacommon::mtu_bytes(peer.mtu)));
  }
  uint32_t number() const { return qp_->qp_num; }

  // [receive]
  // A slot has room for the 40 bytes, and for as much as fits into a packet.
  void receive_into(uint64_t slot) {
    ibv_sge sge = rdmacommon::piece(mr_.get(), slot_at(slot), slot_size_);
    rdmacommon::post_recv(qp_.get(), {.wr_id = slot, .sg_list = &sge, .num_sge = 1});
  }
  const char *slot_at(uint64_t slot) const { return memory_.data() + slot * slot_size_; }
  // [receive]

  bool poll(ibv_wc &completion) {
    if (rdmacommon::check_count(ibv_poll_cq(received_.get(), 1, &completion), "ibv_poll_cq") == 0)
      return false;
    rdmacommon::check_wc(completion, "a receive");
    return true;
  }

  void send(const Destination &to, const std::string &bytes) {
    const size_t slot = memory_.size() / slot_size_ - 1; // the last one is for what goes out
    std::memcpy(memory_.data() + slot * slot_size_, bytes.data(),
                std::min(bytes.size(), slot_size_));
    ibv_sge what = rdmacommon::piece(mr_.get(), slot_at(slot), bytes.size());
    // [send]
    rdmacommon::post_send(
        qp_.get(), {.sg_list = &what,
                    .num_sge = 1,
                    .opcode = IBV_WR_SEND,
                    .send_flags = IBV_SEND_SIGNALED,
                    .wr = {.ud = {.ah = to.ah, .remote_qpn = to.qpn, .remote_qkey = to.qkey}}});
    rdmacommon::wait_for_completion(sent_.get(), "a SEND",
                                    std::chrono::seconds(5)); // it has left, no more
    // [send]
  }

private:
  size_t mtu_, slot_size_;
  std::vector<char> memory_;
  rdmacommon::unique_mr mr_;
  rdmacommon::unique_cq sent_, received_;
  rdmacommon::unique_qp qp_;
};

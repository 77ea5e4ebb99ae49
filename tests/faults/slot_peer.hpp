// SPDX-License-Identifier: MIT
// Peers of rdmashared that lie have this in common: lying_slots.cpp and hostile_peer.cpp. A
// connection by hand, of a client or of a server, which checks nothing that goes out.
#pragma once

#include "ring_connection.hpp"
#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/work_queues.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

struct Peer { // one end of a connection, the client's or the server's
  static constexpr uint32_t depth = 512;

  Peer(rdma_cm_id *id, const rdmashared::Shape &of)
      : shape(of), channel(rdmacommon::create_comp_channel(id->verbs)),
        pd(rdmacommon::alloc_pd(id->verbs)),
        cq(rdmacommon::create_cq(id->verbs, 4 * depth, channel.get())),
        mine(rdmacommon::reg_mr(pd.get(), slots.data(), slots.size(), 0)),
        theirs(rdmacommon::reg_mr(pd.get(), into.data(), into.size(),
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
        requests(id, pd.get(), cq.get()) {
    for (uint32_t i = 0; i < depth; ++i)
      repost();
  }
  void repost() { rdmacommon::post_recv(requests.holder->qp, {}); }

  uint64_t address() const { return reinterpret_cast<uintptr_t>(theirs->addr); }

  // Puts a message into slots that follow each other, from this one on.
  void put(uint32_t slot, const rdmashared::Header &header, std::span<const std::byte> body = {}) {
    std::byte *const at = slots.data() + size_t{slot} * shape.slot_size;
    rdmashared::to_wire(
        std::span<std::byte, rdmashared::Header::bytes>(at, rdmashared::Header::bytes), header);
    if (!body.empty())
      std::memcpy(at + rdmashared::Header::bytes, body.data(), body.size());
  }
  // Sends so many bytes, from the run's first slot on, as this run.
  void write(rdmacommon::Run run, uint32_t bytes) {
    const uint64_t offset = uint64_t{run.first} * shape.slot_size;
    ibv_sge from = rdmacommon::piece(mine.get(), slots.data() + offset % slots.size(), bytes);
    requests.queue.add({.sg_list = &from,
                        .num_sge = bytes > 0 ? 1 : 0,
                        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                        .imm_data = rdmacommon::to_immediate(run),
                        .wr = {.rdma = {.remote_addr = their_address + (bytes > 0 ? offset : 0),
                                        .rkey = their_rkey}}});
    requests.queue.post();
  }
  // A message of its own run.
  void send(uint32_t slot, const rdmashared::Header &header, std::span<const std::byte> body = {}) {
    put(slot, header, body);
    const auto bytes = static_cast<uint32_t>(rdmashared::Header::bytes + body.size());
    write({.first = slot, .count = (bytes + shape.slot_size - 1) / shape.slot_size}, bytes);
  }
  // "I have taken so many runs", modulo 2^24.
  void give_credit(uint32_t runs) { write({.first = runs, .count = 0}, 0); }
  // The header of what has come in this slot.
  rdmashared::Header header(uint32_t slot) const {
    return rdmashared::header_in(std::span<const std::byte, rdmashared::Header::bytes>(
        into.data() + size_t{slot} * shape.slot_size, rdmashared::Header::bytes));
  }
  void add_data_connection(rdma_cm_id *id) { data.emplace(id, pd.get(), cq.get()); }

  struct QueuePair {
    QueuePair(rdma_cm_id *id, ibv_pd *pd, ibv_cq *cq)
        : holder(rdmacommon::create_cm_qp(id, pd, cq,
                                          {.max_send_wr = depth,
                                           .max_recv_wr = depth,
                                           .max_send_sge = 1,
                                           .max_recv_sge = 1,
                                           .max_inline_data = 0})),
          queue(id->qp, depth) {}
    rdmacommon::unique_cm_qp holder;
    rdmacommon::SendQueue queue;
  };

  const rdmashared::Shape shape;
  uint64_t their_address = 0;
  uint32_t their_rkey = 0;
  std::vector<std::byte> slots = std::vector<std::byte>(size_t{shape.slots} * shape.slot_size),
                         into = slots;
  rdmacommon::unique_comp_channel channel;
  rdmacommon::unique_pd pd;
  rdmacommon::unique_cq cq;
  rdmacommon::unique_mr mine, theirs;
  QueuePair requests;
  std::optional<QueuePair> data;
};

// A data connection of the client's.
struct DataId {
  explicit DataId(const rdmacommon::CmOptions &options) {
    rdmacommon::cm_resolve(id.get(), channel.get(), options);
  }

  // @return the server's answer
  rdmacommon::unique_cm_event join(uint64_t token, std::chrono::milliseconds limit,
                                   uint32_t qp_num = 0) {
    const rdmashared::HelloBytes bytes =
        to_bytes(rdmashared::Hello{.purpose = rdmashared::Purpose::data,
                                   .shape = {},
                                   .address = 0,
                                   .token = token,
                                   .rkey = 0});
    rdma_conn_param parameters = rdmashared::connection_parameters(&bytes, sizeof bytes);
    parameters.qp_num = qp_num; // without a queue pair of this id
    rdmacommon::check_errno(rdma_connect(id.get(), &parameters), "rdma_connect");
    return rdmacommon::next_cm_event(channel.get(), RDMA_CM_EVENT_ESTABLISHED, limit);
  }

  rdmacommon::unique_event_channel channel = rdmacommon::create_event_channel();
  rdmacommon::unique_cm_id id = rdmacommon::create_cm_id(channel.get());
};

// SPDX-License-Identifier: MIT
// Peers of rdmashared that lie have this in common: lying_slots.cpp and hostile_peer.cpp. A
// connection by hand, of a client or of a server, which checks nothing that goes out.
#pragma once

#include "rdma_connection.hpp"
#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

struct Peer { // of either side
  Peer(rdma_cm_id *id, const rdmashared::Shape &of) : shape(of), with(id, of.window, of.slots) {
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    mine = with.reg(slots, IBV_ACCESS_LOCAL_WRITE);
    theirs = with.reg(into, access);
  }
  void put(uint32_t slot, const rdmacommon::SlotHeader &header) {
    const rdmacommon::SlotHeader wire = to_wire(header);
    std::memcpy(slots.data() + size_t{slot} * shape.slot_size, &wire, sizeof wire);
  }
  void write(rdmacommon::Run run, uint32_t bytes) {
    add_run(with.runs.queue, mirror, run, bytes);
    with.runs.queue.post();
  }
  // A long response, from a server.
  void write_data(rdmacommon::Run run, uint32_t bytes) {
    ibv_sge local = rdmacommon::piece(mine, slots.data(), bytes);
    with.data->queue.add({.sg_list = &local,
                          .num_sge = 1,
                          .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                          .imm_data = rdmacommon::to_immediate(run),
                          .wr = {.rdma = {.remote_addr = data_address, .rkey = data_rkey}}});
    with.data->queue.post();
  }
  const rdmashared::Shape shape;
  uint64_t data_address = 0; // slot 0 of the client's
  uint32_t data_rkey = 0;
  std::vector<std::byte> slots = std::vector<std::byte>(size_t{shape.slots} * shape.slot_size),
                         into = slots;
  rdmashared::Connection with;
  const ibv_mr *mine, *theirs;
  rdmacommon::SlotMirror mirror{};
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
                                   .answers_address = 0,
                                   .data_address = 0,
                                   .token = token,
                                   .answers_rkey = 0,
                                   .data_rkey = 0});
    rdma_conn_param parameters = rdmashared::connection_parameters(&bytes, sizeof bytes);
    parameters.qp_num = qp_num; // without a queue pair of this id
    rdmacommon::check_errno(rdma_connect(id.get(), &parameters), "rdma_connect");
    return rdmacommon::next_cm_event(channel.get(), RDMA_CM_EVENT_ESTABLISHED, limit);
  }

  rdmacommon::unique_event_channel channel = rdmacommon::create_event_channel();
  rdmacommon::unique_cm_id id = rdmacommon::create_cm_id(channel.get());
};

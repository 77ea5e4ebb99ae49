// SPDX-License-Identifier: MIT
// For hostile_peer.cpp: what a hostile client and a hostile server have in common. Random numbers
// from a seed, and all that a queue pair lets its owner send.
#pragma once

#include "slot_peer.hpp"
#include "wire.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>

class Dice {
public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  uint32_t below(uint64_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool one_in(uint32_t times) { return below(times) == 0; }
  uint32_t any() { // often one at which something changes
    switch (below(4)) {
    case 0:
      return below(8);
    case 1:
      return ~below(4);
    case 2:
      return 1U << below(32);
    default:
      return static_cast<uint32_t>(random_());
    }
  }
  void fill(std::span<std::byte> bytes) {
    for (std::byte &byte : bytes)
      byte = static_cast<std::byte>(below(256));
  }

private:
  std::mt19937_64 random_;
};

struct Tally {
  uint32_t rounds = 0, connected = 0;
  uint64_t actions = 0, from_the_peer = 0; // slots
};

inline void spoil(rdmacommon::SlotHeader &header, Dice &dice) {
  switch (dice.below(5)) {
  case 0:
    header.length = dice.any();
    break;
  case 1:
    header.kind = static_cast<uint16_t>(dice.any());
    break;
  case 2:
    header.kind = static_cast<uint16_t>((header.kind & 0xff00) | dice.below(10));
    break;
  case 3:
    header.flags = static_cast<uint16_t>(dice.any());
    break;
  default:
    header.id ^= uint64_t{dice.any()} << dice.below(48);
  }
}

// The moves of both roles: all that a queue pair lets them do.
class Hostile {
public:
  // @param channel of the events of this connection
  Hostile(rdma_cm_id *id, const rdmashared::Shape &shape, rdma_event_channel *channel, Dice &dice,
          Tally &tally)
      : peer(id, shape), channel_(channel), dice_(dice), tally_(tally), is_deaf_(dice.one_in(16)) {
    dice_.fill(std::span(peer.slots).first(std::min<size_t>(peer.slots.size(), 4096)));
  }

  // Random actions, each of them perhaps the last that the connection lives to see.
  // @param act  one that makes sense, more or less
  // @param hear what the peer has said
  void go_on(const std::function<void()> &act, const std::function<void(rdmacommon::Run)> &hear) {
    for (uint32_t left = dice_.below(300); left > 0 && look(hear); --left) {
      if (peer.with.runs.queue.room() < 32 || (peer.with.data && peer.with.data->queue.room() < 32))
        continue;
      ++tally_.actions;
      dice_.one_in(12) ? nonsense() : act();
    }
  }

  // A message of these slots, in the runs in which it should come, or in others.
  void write_message(uint32_t slot, uint32_t count) {
    last_ = slot;
    const uint32_t longest = dice_.one_in(48) ? 1 + dice_.below(255) : 255;
    for (uint32_t end = std::min(slot + count, peer.shape.slots), runs = 0; slot < end && runs < 16;
         ++runs) {
      const rdmacommon::Run run{.first = slot, .count = std::min(end - slot, longest)};
      const uint32_t all = run.count * peer.shape.slot_size;
      peer.write(run, dice_.one_in(64) ? dice_.below(all + 1) : all);
      slot += dice_.one_in(64) ? dice_.below(longest) : run.count;
    }
  }

  Peer peer;

private:
  // @return false if the connection is over
  bool look(const std::function<void(rdmacommon::Run)> &hear) {
    if (peer.with.arm()) {
      std::array<pollfd, 2> fds{
          {{.fd = peer.with.fd(), .events = POLLIN}, {.fd = channel_->fd, .events = POLLIN}}};
      poll(fds.data(), fds.size(), static_cast<int>(dice_.below(8)));
    }
    peer.with.take_event();
    std::array<ibv_wc, 64> done{};
    for (const ibv_wc &wc : std::span(done).first(peer.with.poll(done))) {
      if (wc.status != IBV_WC_SUCCESS)
        return false;
      const bool is_of_data = peer.with.is_of_data(wc);
      if ((wc.opcode & IBV_WC_RECV) == 0) {
        (is_of_data ? *peer.with.data : peer.with.runs).queue.completed(wc);
        continue;
      }
      (is_of_data ? *peer.with.data_receiver : peer.with.receiver).received(wc);
      const rdmacommon::Run run = rdmacommon::from_immediate(wc.imm_data);
      tally_.from_the_peer += run.count;
      hear(run);
    }
    if (!is_deaf_)
      peer.with.repost();
    while (rdmacommon::unique_cm_event event = rdmacommon::take_cm_event(channel_)) {
      const auto what = event->event;
      const rdmacommon::unique_cm_id stray(what == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id
                                                                                 : nullptr);
      event.reset();
      if (what == RDMA_CM_EVENT_DISCONNECTED || what == RDMA_CM_EVENT_REJECTED)
        return false;
    }
    return true;
  }

  // A WRITE without a word, or with one; to where the peer allows it, or not.
  void nonsense() {
    const uint64_t all = peer.slots.size();
    const uint32_t bytes = dice_.below(std::min<uint64_t>(all, dice_.one_in(4) ? all : 100) + 1);
    // Often where something is under way.
    const uint64_t offset =
        std::min(dice_.one_in(2) ? dice_.below(all) : last_ * peer.shape.slot_size, all - bytes);
    dice_.fill(std::span(peer.slots).subspan(offset, std::min(bytes, 256U)));
    ibv_sge local = rdmacommon::piece(peer.mine, peer.slots.data() + offset, bytes);
    const bool is_by_data = peer.with.data && dice_.one_in(3);
    const bool is_into_data = is_by_data && peer.data_rkey != 0;
    ibv_send_wr request{.sg_list = &local,
                        .num_sge = bytes > 0 ? 1 : 0,
                        .opcode = IBV_WR_RDMA_WRITE,
                        .wr = {.rdma = {.remote_addr = is_into_data ? peer.data_address
                                                                    : peer.mirror.address + offset,
                                        .rkey = is_into_data ? peer.data_rkey : peer.mirror.rkey}}};
    const uint32_t slots = peer.shape.slots;
    switch (dice_.below(20)) {
    case 0:
      request.opcode = dice_.one_in(2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
      break;
    case 1:
      request.wr.rdma.remote_addr += dice_.any();
      break;
    case 2:
      request.wr.rdma.rkey ^= dice_.any();
      break;
    case 3: // "closing", as the server says it
      request = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
      break;
    case 4:
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      request.imm_data = dice_.any();
      break;
    case 5:
    case 6: // a run of what there is
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      request.imm_data = rdmacommon::to_immediate(
          {.first = dice_.below(slots), .count = 1 + dice_.below(dice_.any() % 255 + 1)});
      break;
    default: // only other bytes there
      break;
    }
    rdmacommon::SendQueue &queue = (is_by_data ? *peer.with.data : peer.with.runs).queue;
    for (uint32_t times = dice_.one_in(16) ? 24 : 1; times > 0; --times)
      queue.add(request);
    queue.post();
  }

  rdma_event_channel *channel_;
  Dice &dice_;
  Tally &tally_;
  uint64_t last_ = 0;  // slot of the message that was sent last
  const bool is_deaf_; // takes nothing that the peer sends
};

// Somewhere on the way to the other side, or not at all.
template <typename Bytes> void spoil(Bytes &bytes, Dice &dice) {
  if (dice.one_in(8))
    dice.fill(std::span(bytes.bytes).subspan(dice.below(sizeof bytes), 1));
  if (dice.one_in(32))
    dice.fill(bytes.bytes);
}

// SPDX-License-Identifier: MIT
// For hostile_peer.cpp: what a hostile client and a hostile server have in common. Random numbers
// from a seed, and all that a queue pair lets its owner send.
#pragma once

#include "slot_peer.hpp"
#include "wire.hpp"

#include <rdmacommon/cm.hpp>
#include <rdmacommon/immediate.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
  uint64_t actions = 0, from_the_peer = 0; // messages, without pings and their answers
};

inline void spoil(rdmashared::Header &header, Dice &dice) {
  switch (dice.below(4)) {
  case 0:
    header.length = dice.any();
    break;
  case 1:
    header.kind = static_cast<rdmashared::Kind>(dice.below(dice.one_in(2) ? 256 : 13));
    break;
  case 2:
    header.max_response = dice.any();
    break;
  default:
    header.id ^= uint64_t{dice.any()} << dice.below(48);
  }
}

// The moves of both roles. A peer that keeps to the rules most of the time gets far enough to
// break them where it hurts.
class Hostile {
public:
  // @param channel of the events of this connection
  Hostile(rdma_cm_id *id, const rdmashared::Shape &shape, rdma_event_channel *channel, Dice &dice,
          Tally &tally)
      : peer(id, shape), out_(shape, 1 + dice.below(255)), in_(shape), channel_(channel),
        dice_(dice), tally_(tally), is_deaf_(dice.one_in(16)) {
    dice_.fill(out_.memory().first(std::min<size_t>(out_.memory().size(), 4096)));
  }

  // Notes that this side has lied: what it hears from here on may make no sense.
  void has_lied() { has_lied_ = true; }

  using Hear = std::function<void(const rdmashared::Header &, std::span<const std::byte>)>;

  // Random actions, each of them perhaps the last that the connection lives to see.
  // @param act  one that makes sense, more or less
  // @param hear what the peer has said
  void go_on(const std::function<void()> &act, const Hear &hear) {
    for (uint32_t left = dice_.below(300); left > 0 && look(hear); --left) {
      if (peer.requests.queue.room() < 64 || (peer.data && peer.data->queue.room() < 32))
        continue;
      ++tally_.actions;
      dice_.one_in(32) ? nonsense() : act();
      send();
      if (!is_deaf_ && in_.owes_credit())
        dice_.one_in(64) ? lie() : peer.give_credit(in_.next_credit());
    }
  }

  // @param body random bytes follow these
  void put(rdmashared::Header header, std::span<const std::byte> body) {
    if (!out_.has_room(rdmashared::slots_for(body.size(), peer.shape.slot_size)))
      return;
    if (dice_.one_in(96))
      spoil(header, dice_);
    out_.put(header, body);
  }
  uint32_t longest() const { // bytes behind a header
    return rdmashared::longest_message(peer.shape.slots) * peer.shape.slot_size -
           rdmashared::Header::bytes - rdmashared::ResponseBuffer::bytes;
  }

  Peer peer;

private:
  // The runs that have been put, or others.
  void send() {
    for (rdmashared::OutRing::Piece piece{}; peer.requests.queue.room() > 32 && out_.next(piece);) {
      const size_t at = size_t{piece.run.first} * peer.shape.slot_size;
      std::memcpy(peer.slots.data() + at, out_.memory().data() + at, piece.bytes);
      if (dice_.one_in(256))
        piece.bytes = dice_.below(piece.bytes + 1);
      if (dice_.one_in(256))
        piece.run.count = dice_.below(256);
      has_lied_ |= piece.run.count == 0; // such a run is a credit
      if (dice_.one_in(256))
        piece.run.first = dice_.below(peer.shape.slots);
      const size_t all = (peer.shape.slots - piece.run.first) * size_t{peer.shape.slot_size};
      peer.write(piece.run, static_cast<uint32_t>(std::min<size_t>(piece.bytes, all)));
      last_ = at;
    }
  }

  // @return false if the connection is over
  bool look(const Hear &hear) {
    if (!is_armed_)
      rdmacommon::check_rc(ibv_req_notify_cq(peer.cq.get(), 0), "ibv_req_notify_cq");
    else {
      std::array<pollfd, 2> fds{
          {{.fd = peer.channel->fd, .events = POLLIN}, {.fd = channel_->fd, .events = POLLIN}}};
      poll(fds.data(), fds.size(), static_cast<int>(dice_.below(8)));
    }
    is_armed_ = rdmacommon::take_event(peer.channel.get()) == nullptr;
    std::array<ibv_wc, 64> done{};
    for (const ibv_wc &wc : std::span(done).first(rdmacommon::poll_batch(peer.cq.get(), done))) {
      if (wc.status != IBV_WC_SUCCESS)
        return false;
      if ((wc.opcode & IBV_WC_RECV) == 0) {
        const bool is_of_data = peer.data && wc.qp_num == peer.data->holder->qp->qp_num;
        (is_of_data ? *peer.data : peer.requests).queue.completed(wc);
        continue;
      }
      if (is_deaf_)
        continue;
      peer.repost();
      take(rdmacommon::from_immediate(wc.imm_data), wc.byte_len, hear);
    }
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

  // The other side is honest, so a run that is not right is an error of the test's, or of that
  // side. But if this side has lied about its ring, the other writes anywhere.
  void take(rdmacommon::Run run, uint32_t bytes, const Hear &hear) {
    if (run.count == 0) {
      try { // it has not taken what this side has said it sent
        out_.taken(run.first);
      } catch (const rdmacommon::Error &) {
      }
      return;
    }
    const size_t at = size_t{run.first} * peer.shape.slot_size;
    std::memcpy(in_.memory().data() + at, peer.into.data() + at, bytes);
    try {
      in_.take(run, bytes, [&](const rdmashared::Header &header, std::span<const std::byte> body) {
        if (header.kind != rdmashared::Kind::ping && header.kind != rdmashared::Kind::pong)
          ++tally_.from_the_peer;
        hear(header, body);
      });
    } catch (const rdmacommon::Error &) {
      if (!has_lied_)
        throw;
    }
  }

  // "I have taken so many runs."
  void lie() {
    has_lied_ = true;
    peer.give_credit(dice_.any() % rdmacommon::Run::first_limit);
  }

  // A WRITE without a word, or with one; to where the peer allows it, or not.
  void nonsense() {
    const uint64_t all = peer.slots.size();
    const uint32_t bytes = dice_.below(std::min<uint64_t>(all, dice_.one_in(4) ? all : 100) + 1);
    // Often where something is under way.
    const uint64_t offset = std::min(dice_.one_in(2) ? dice_.below(all) : last_, all - bytes);
    dice_.fill(std::span(peer.slots).subspan(offset, std::min(bytes, 256U)));
    ibv_sge local = rdmacommon::piece(peer.mine.get(), peer.slots.data() + offset, bytes);
    ibv_send_wr request{
        .sg_list = &local,
        .num_sge = bytes > 0 ? 1 : 0,
        .opcode = IBV_WR_RDMA_WRITE,
        .wr = {.rdma = {.remote_addr = peer.their_address + offset, .rkey = peer.their_rkey}}};
    switch (dice_.below(24)) {
    case 0:
      request.opcode = dice_.one_in(2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
      break;
    case 1:
      request.wr.rdma.remote_addr += dice_.any();
      break;
    case 2:
      request.wr.rdma.rkey ^= dice_.any();
      break;
    case 3:
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      request.imm_data = dice_.any();
      has_lied_ = true; // maybe
      break;
    case 4:
      return lie();
    default: // only other bytes there
      break;
    }
    rdmacommon::SendQueue &queue =
        (peer.data && dice_.one_in(3) ? *peer.data : peer.requests).queue;
    for (uint32_t times = dice_.one_in(16) ? 24 : 1; times > 0; --times)
      queue.add(request);
    queue.post();
  }

  rdmashared::OutRing out_;
  rdmashared::InRing in_;
  rdma_event_channel *channel_;
  Dice &dice_;
  Tally &tally_;
  uint64_t last_ = 0; // offset of the run that was sent last
  bool is_armed_ = false;
  bool has_lied_ = false; // about its ring
  const bool is_deaf_;    // takes nothing that the peer sends
};

// Somewhere on the way to the other side, or not at all.
// @return whether it has changed any
template <typename Bytes> bool spoil(Bytes &bytes, Dice &dice) {
  const bool one = dice.one_in(8), all = dice.one_in(32);
  if (one)
    dice.fill(std::span(bytes.bytes).subspan(dice.below(sizeof bytes), 1));
  if (all)
    dice.fill(bytes.bytes);
  return one || all;
}

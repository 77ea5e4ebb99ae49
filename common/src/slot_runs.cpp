// SPDX-License-Identifier: MIT
#include "rdmacommon/slot_runs.hpp"

#include "rdmacommon/check.hpp"
#include "rdmacommon/requests.hpp"

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <string>

namespace rdmacommon {

SlotHeader to_wire(SlotHeader header) {
  return {.length = htonl(header.length),
          .kind = htons(header.kind),
          .flags = htons(header.flags),
          .id = htobe64(header.id)};
}

SlotHeader from_wire(SlotHeader header) {
  return {.length = ntohl(header.length),
          .kind = ntohs(header.kind),
          .flags = ntohs(header.flags),
          .id = be64toh(header.id)};
}

SlotHeader copied_header(std::byte *slot) {
  // Each half by one atomic load. The compiler may leave a plain copy out, and read the slot again.
  auto *halves = reinterpret_cast<uint64_t *>(slot);
  return std::bit_cast<SlotHeader>(
      std::array{std::atomic_ref(halves[0]).load(std::memory_order_relaxed),
                 std::atomic_ref(halves[1]).load(std::memory_order_relaxed)});
}

uint32_t slots_of(uint32_t length, uint32_t slot_size) {
  const uint64_t bytes = sizeof(SlotHeader) + uint64_t{length}; // 32 bits could overflow
  return static_cast<uint32_t>((bytes + slot_size - 1) / slot_size);
}

// ---- the send queue

SendQueue::SendQueue(ibv_qp *qp, uint32_t depth)
    : qp_(qp), depth_(depth), signal_every_(std::max(depth / 2, 1U)) {
  if (depth == 0)
    throw Error("a send queue", "it has no room for a request");
  // All the room that it will ever need: the requests point to each other, and to their pieces.
  requests_.reserve(depth);
  pieces_.reserve(depth);
}

// [queue-add]
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
// [queue-add]

// [queue-post]
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
// [queue-post]

// [queue-completed]
void SendQueue::completed(const ibv_wc &wc, Where where) {
  check_wc(wc, "a request of the send queue", where);
  if (wc.qp_num != qp_->qp_num || wc.wr_id <= done_ || wc.wr_id > posted_)
    throw Error("a completion", "it belongs to no request of the send queue", where);
  done_ = wc.wr_id; // and with it the unsignaled requests before it
}
// [queue-completed]

// [add-run]
void add_run(SendQueue &queue, const SlotMirror &mirror, Run run, uint32_t bytes, unsigned flags,
             Where where) {
  const uint64_t offset = uint64_t{run.first} * mirror.slot_size;
  if (bytes > uint64_t{run.count} * mirror.slot_size ||
      (bytes > 0 && offset + bytes > mirror.mine->length))
    throw Error("a run", std::to_string(bytes) + " bytes are more than its slots have", where);
  ibv_send_wr request{
      .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = flags, .imm_data = to_immediate(run)};
  ibv_sge local{};
  if (bytes > 0) { // without data, the NIC looks at neither address nor rkey
    local = piece(mirror.mine, static_cast<const std::byte *>(mirror.mine->addr) + offset, bytes);
    request.sg_list = &local;
    request.num_sge = 1;
    request.wr.rdma = {.remote_addr = mirror.address + offset, .rkey = mirror.rkey};
    if (bytes <= mirror.max_inline)
      request.send_flags |= IBV_SEND_INLINE;
  }
  queue.add(request, where);
}
// [add-run]

// ---- the receive queue

// [checked-run]
Run checked_run(uint32_t imm_data, uint32_t slots, Where where) {
  const Run run = from_immediate(imm_data);
  if (run.count == 0)
    throw Error("the peer's run", "it has no slots", where);
  if (run.first >= slots || run.count > slots - run.first)
    throw Error("the peer's run",
                std::to_string(run.count) + " slots from " + std::to_string(run.first) +
                    " on: there are only " + std::to_string(slots),
                where);
  return run;
}
// [checked-run]

// [run-receiver]
RunReceiver::RunReceiver(ibv_qp *qp, uint32_t depth, uint32_t slots)
    : qp_(qp), slots_(slots), used_(depth), chain_(depth) {
  if (depth == 0)
    throw Error("a receive queue", "it has no room for a receive");
  for (size_t i = 0; i + 1 < chain_.size(); ++i)
    chain_[i].next = &chain_[i + 1];
  repost();
}

Run RunReceiver::received(const ibv_wc &wc, Where where) {
  check_wc(wc, "a receive", where);
  if (wc.qp_num != qp_->qp_num || used_ == chain_.size())
    throw Error("a completion", "it belongs to no receive of the queue", where);
  ++used_;
  if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
    throw Error("the peer's message", "it is not an RDMA WRITE with immediate data", where);
  return checked_run(wc.imm_data, slots_, where);
}

void RunReceiver::repost(Where where) {
  if (used_ == 0)
    return;
  // Posts as many of the chain as are needed: cuts it there, and links it again.
  ibv_recv_wr &last = chain_[used_ - 1], *const behind = last.next, *refused = nullptr;
  last.next = nullptr;
  const int rc = ibv_post_recv(qp_, chain_.data(), &refused);
  last.next = behind;
  ++posts_;
  check_rc(rc, "ibv_post_recv", where);
  used_ = 0;
}
// [run-receiver]

} // namespace rdmacommon

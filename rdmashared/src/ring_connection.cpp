// SPDX-License-Identifier: MIT
#include "ring_connection.hpp"

#include <rdmacommon/check.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <bit>

namespace rdmashared {

using namespace rdmacommon;

namespace {

constexpr uint32_t send_depth = 2 * runs_ahead; // requests in a send queue
// The runs and the news that can be under way; and those that have come, and whose receives were
// not posted again yet.
constexpr uint32_t receives_late = 64;
constexpr uint32_t receives = runs_ahead + InRing::credits_ahead + receives_late;
constexpr uint32_t inline_bytes = 64;
constexpr uint8_t ack_timeout = 17; // 4.096 us << 17 = 537 ms, and retry_count more times that

} // namespace

Connection::QueuePair::QueuePair(rdma_cm_id *id, ibv_pd *pd, ibv_cq *cq, uint32_t for_receives)
    : holder(create_cm_qp(id, pd, cq,
                          {.max_send_wr = send_depth,
                           .max_recv_wr = for_receives,
                           .max_send_sge = 1,
                           .max_recv_sge = 1,
                           .max_inline_data = inline_bytes})),
      queue(id->qp, send_depth) {}

Connection::Connection(rdma_cm_id *id, const Shape &shape, uint32_t group, Stats &stats)
    : stats_(stats), out_(shape, group), in_(shape), channel_(create_comp_channel(id->verbs)),
      pd_(alloc_pd(id->verbs)),
      cq_(create_cq(id->verbs, static_cast<int>(receives + 2 * send_depth + 1), channel_.get())),
      out_mr_(reg_mr(pd_.get(), out_.memory().data(), out_.memory().size(), 0)),
      in_mr_(reg_mr(pd_.get(), in_.memory().data(), in_.memory().size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
      requests_(id, pd_.get(), cq_.get(), receives), receives_(id->qp, receives) {}

void Connection::set_peer(uint64_t address, uint32_t rkey) {
  peer_address_ = address;
  peer_rkey_ = rkey;
}

bool Connection::post() {
  SendQueue &queue = requests_.queue;
  if (out_.is_empty() && !in_.owes_credit())
    return false;
  OutRing::Piece piece{};
  while (queue.room() > InRing::credits_ahead && out_.next(piece)) {
    const uint64_t offset = uint64_t{piece.run.first} * out_.slot_size();
    ibv_sge from = rdmacommon::piece(out_mr_.get(), out_.memory().data() + offset, piece.bytes);
    queue.add({.sg_list = &from,
               .num_sge = 1,
               .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
               .send_flags = piece.bytes <= inline_bytes ? unsigned{IBV_SEND_INLINE} : 0,
               .imm_data = to_immediate(piece.run),
               .wr = {.rdma = {.remote_addr = peer_address_ + offset, .rkey = peer_rkey_}}});
    if (piece.messages > 0) // else it goes on with a message
      stats_.count_group(piece.messages);
  }
  if (in_.owes_credit() && queue.room() > 0) {
    repost(); // first: the peer may send more once it has heard
    queue.add({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
               .imm_data = to_immediate({.first = in_.next_credit(), .count = 0})});
  }
  const uint64_t before = queue.posts();
  queue.post();
  stats_.posts += queue.posts() - before;
  return queue.posts() != before;
}

// A WRITE of no bytes, which takes no receive.
void Connection::probe() {
  SendQueue &queue = requests_.queue;
  if (queue.room() <= InRing::credits_ahead)
    return; // the WRITEs under way there ask the peer's host, too
  queue.add({.opcode = IBV_WR_RDMA_WRITE,
             .send_flags = IBV_SEND_SIGNALED,
             .wr = {.rdma = {.remote_addr = peer_address_, .rkey = peer_rkey_}}});
  queue.post();
  stats_.posts += 1;
}

bool Connection::poll() {
  std::array<ibv_wc, 64> done;
  const size_t count = poll_batch(cq_.get(), done);
  for (const ibv_wc &wc : std::span(done).first(count)) {
    stats_.count(wc);
    check_wc(wc, "a WRITE or a receive");
    if ((wc.opcode & IBV_WC_RECV) != 0)
      received(wc);
    else if (data_ && wc.qp_num == data_->holder->qp->qp_num) {
      data_->queue.completed(wc);
      data_written_ = data_->queue.done();
    } else
      requests_.queue.completed(wc);
  }
  if (receives_.used() >= receives_late)
    repost();
  return count > 0;
}

void Connection::received(const ibv_wc &wc) {
  const Run run = from_immediate(receives_.received(wc));
  if (run.count == 0)
    return out_.taken(run.first);
  in_.came(run);
  runs_.push_back({.run = run, .length = wc.byte_len});
}

void Connection::add_data_connection(rdma_cm_id *id) {
  data_.emplace(id, pd_.get(), cq_.get(), 1);
}

bool Connection::write_data(const ibv_mr *from, std::span<const std::byte> bytes,
                            const ResponseBuffer &to) {
  SendQueue &queue = data_->queue;
  if (queue.room() == 0)
    return false;
  ibv_sge local = piece(from, bytes.data(), bytes.size());
  queue.add({.sg_list = &local,
             .num_sge = bytes.empty() ? 0 : 1,
             .opcode = IBV_WR_RDMA_WRITE,
             .send_flags = IBV_SEND_SIGNALED,
             .wr = {.rdma = {.remote_addr = to.address, .rkey = to.rkey}}});
  queue.post();
  stats_.posts += 1;
  return true;
}

void Connection::repost() {
  stats_.posts += receives_.repost();
}

bool Connection::arm() {
  if (std::exchange(is_armed_, true))
    return true;
  stats_.other_calls += 1;
  check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
  return false;
}

void Connection::take_event() {
  stats_.other_calls += 1;
  if (rdmacommon::take_event(channel_.get()) != nullptr)
    is_armed_ = false;
}

void Connection::destroy_queue_pairs() {
  if (data_)
    data_->holder.reset();
  requests_.holder.reset();
}

void leave_channel(std::initializer_list<rdma_cm_id *> ids, Connection *connection) {
  for (rdma_cm_id *id : ids)
    if (id != nullptr && rdma_migrate_id(id, nullptr) != 0 && connection != nullptr)
      connection->destroy_queue_pairs();
}

void set_ack_timeout(rdma_cm_id *id) {
  uint8_t value = ack_timeout;
  check_errno(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, sizeof value),
              "rdma_set_option(ACK_TIMEOUT)");
}

} // namespace rdmashared

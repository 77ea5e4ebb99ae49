// SPDX-License-Identifier: MIT
// One client of many_server.cpp: everything that belongs to it, and what the server does when one
// of its requests completes.
//
// It speaks one of two protocols: ours, that of lesson 12, or that of the stock program rping. A
// client that sends a wrong message, or none, causes an Error; the code that catches it closes the
// connection.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <endian.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

// The message of rping's client: it names a buffer of the client. All of it is in network byte
// order (rping.c of rdma-core).
struct RpingBuffer {
  uint64_t address;
  uint32_t rkey;
  uint32_t size;
};
static_assert(sizeof(RpingBuffer) == 16);

class ClientConnection {
public:
  using Clock = std::chrono::steady_clock;
  static constexpr int max_requests = 5; // receives and sends that are posted at a time

  // @param id      the request's
  // @param step    how long the client may take to say what is due
  // @param silence after which we check whether a client is alive that owes us nothing
  ClientConnection(rdmacommon::unique_cm_id id, bool is_rping, ibv_cq *cq,
                   std::chrono::milliseconds step, std::chrono::milliseconds silence)
      : id_(std::move(id)), is_rping_(is_rping), step_(step), silence_(silence),
        pd_(rdmacommon::alloc_pd(id_->verbs)) {
    using namespace rdmacommon;
    // rping's client needs no access to our memory: the server READs and WRITEs its memory.
    const int remote = is_rping ? 0 : IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    data_mr_ = reg_mr(pd_.get(), memory_->data.data(), memory_->data.size(),
                      access_for_reads(id_->verbs) | remote);
    message_mr_ =
        reg_mr(pd_.get(), &memory_->message, sizeof memory_->message, IBV_ACCESS_LOCAL_WRITE);
    qp_ = create_cm_qp(id_.get(), pd_.get(), cq,
                       {.max_send_wr = max_requests - 1,
                        .max_recv_wr = 1,
                        .max_send_sge = 1,
                        .max_recv_sge = 1,
                        .max_inline_data = sizeof(Description)});
    id_->context = this; // so that an event of the id leads here
    due_in(step_);
  }

  ibv_qp *qp() const { return id_->qp; }
  bool is_rping() const { return is_rping_; }
  Clock::time_point deadline() const { return deadline_; }
  bool dropped = false; // the server's mark

  void accept(const rdma_conn_param &asked) {
    using namespace rdmacommon;
    post_receive(); // before the client knows that it may send
    const Greeting hello = greeting();
    rdma_conn_param answer{.private_data = is_rping_ ? nullptr : &hello,
                           .private_data_len = static_cast<uint8_t>(is_rping_ ? 0 : sizeof hello),
                           .responder_resources = std::min<uint8_t>(asked.responder_resources, 1),
                           .initiator_depth = std::min<uint8_t>(asked.initiator_depth, 1),
                           .rnr_retry_count = 6};
    check_errno(rdma_accept(id_.get(), &answer), "rdma_accept");
  }

  void established() { due_in(step_); }

  // @throws Error if the request failed, or the client has sent a wrong message
  // [completed]
  void completed(const ibv_wc &wc) {
    --posted_;
    if (closed_) // flushed
      return;
    // [flushed]
    // An iWARP device flushes the receive when the client disconnects. The event comes after that.
    const bool is_iwarp = id_->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
    if (is_iwarp && wc.status == IBV_WC_WR_FLUSH_ERR)
      return close();
    // [flushed]
    rdmacommon::check_wc(wc, "a request");
    due_in(awaits_message() ? step_ : silence_);
    switch (static_cast<Work>(wc.wr_id)) {
    case Work::receive:
      is_rping_ ? take_rping_buffer(wc.byte_len) : take_description(wc.byte_len);
      break;
    case Work::transfer: // the READ of the ping, or the WRITE of the pong: the client may continue
      post_receive();
      send(RpingBuffer{});
      break;
    case Work::probe:
      probing_ = false;
      break;
    case Work::send:
      break;
    }
  }
  // [completed]

  // Call this after the deadline. @throws Error if the client must send a message by now
  // [overdue]
  void overdue() {
    if (awaits_message())
      throw rdmacommon::Error("the client", "it has sent no message for " +
                                                std::to_string(step_.count()) + " ms");
    // The client works on our memory, or is idle, or its host is dead. A WRITE of 0 bytes needs no
    // memory and changes nothing, but the client's NIC must acknowledge it. If it does not, the
    // completion fails.
    due_in(silence_);
    if (std::exchange(probing_, true))
      return;
    post({.wr_id = static_cast<uint64_t>(Work::probe),
          .opcode = IBV_WR_RDMA_WRITE,
          .send_flags = IBV_SEND_SIGNALED});
  }
  // [overdue]

  // The posted requests come back flushed. The server destroys the queue pair after all of them, so
  // that no completion is left for a later queue pair with the same number.
  // [close]
  void close() noexcept {
    if (std::exchange(closed_, true))
      return;
    deadline_ = Clock::time_point::max(); // we wait for nothing more
    try {
      rdmacommon::to_error(id_->qp); // rdma_disconnect does so only if there is a connection
    } catch (const std::exception &error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    rdma_disconnect(id_.get()); // fails if there is no connection (any more)
  }
  bool is_closed() const { return closed_; }
  bool is_gone() const { return closed_ && posted_ == 0; }
  // [close]

private:
  enum class Work : uint64_t { receive, send, transfer, probe };
  struct Memory {
    std::array<char, 65536> data;
    std::array<char, sizeof(rdmacommon::Description)> message; // by either protocol
  };

  void due_in(std::chrono::milliseconds how_long) { deadline_ = Clock::now() + how_long; }
  bool awaits_message() const { return is_rping_ || !described_; }

  void post(const ibv_send_wr &request) {
    rdmacommon::post_send(id_->qp, request);
    ++posted_;
  }

  void post_receive() {
    ibv_sge into =
        rdmacommon::piece(message_mr_.get(), memory_->message.data(), memory_->message.size());
    rdmacommon::post_recv(
        id_->qp, {.wr_id = static_cast<uint64_t>(Work::receive), .sg_list = &into, .num_sge = 1});
    ++posted_;
  }

  template <typename Message> void send(const Message &message) {
    ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(&message), .length = sizeof message, .lkey = 0};
    post({.wr_id = static_cast<uint64_t>(Work::send),
          .sg_list = &sge,
          .num_sge = 1,
          .opcode = IBV_WR_SEND,
          .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE});
  }

  // Our protocol: the client describes its memory, and we describe ours. After that the client
  // WRITEs and READs without us.
  void take_description(size_t bytes) {
    using namespace rdmacommon;
    if (described_)
      throw Error("the client", "it says more than it should");
    Description theirs{};
    std::memcpy(&theirs, memory_->message.data(), sizeof theirs);
    parse_description(theirs, bytes); // throws if it is wrong
    described_ = true;
    due_in(silence_);
    post_receive(); // for a message that should not come
    send(describe(data_mr_.get()));
  }

  // rping: the client first sends the address of its ping, and we READ the ping. Then the client
  // sends the address of another buffer, and we WRITE the ping there.
  void take_rping_buffer(size_t bytes) {
    using namespace rdmacommon;
    RpingBuffer buffer{};
    if (bytes != sizeof buffer)
      throw Error("rping's message", "it has " + std::to_string(bytes) + " bytes, not 16");
    std::memcpy(&buffer, memory_->message.data(), sizeof buffer);
    const uint64_t address = be64toh(buffer.address);
    const uint32_t size = be32toh(buffer.size);
    if (size == 0 || size > memory_->data.size() || address + size < address)
      throw Error("rping's message", "its buffer is impossible");
    pong_ = !pong_;
    ping_size_ = pong_ ? size : std::min(size, ping_size_);
    ibv_sge sge = piece(data_mr_.get(), memory_->data.data(), ping_size_);
    post({.wr_id = static_cast<uint64_t>(Work::transfer),
          .sg_list = &sge,
          .num_sge = 1,
          .opcode = pong_ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
          .send_flags = IBV_SEND_SIGNALED,
          .wr = {.rdma = {.remote_addr = address, .rkey = be32toh(buffer.rkey)}}});
  }

  rdmacommon::unique_cm_id id_;
  const bool is_rping_;
  const std::chrono::milliseconds step_, silence_;
  Clock::time_point deadline_;
  uint32_t posted_ = 0; // requests whose completions have not come
  bool closed_ = false, probing_ = false;
  bool described_ = false; // our protocol: the client has described its memory
  bool pong_ = false;      // rping: we READ or have READ the ping; its pong is next
  uint32_t ping_size_ = 0;
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  rdmacommon::unique_pd pd_; // a PD for each client: another client's rkey opens nothing here
  rdmacommon::unique_mr data_mr_, message_mr_;
  rdmacommon::unique_cm_qp qp_; // made last, destroyed first
};

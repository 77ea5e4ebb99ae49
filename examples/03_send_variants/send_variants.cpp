// SPDX-License-Identifier: MIT
// 03_send_variants: what a work request can carry, in one small exchange for each.
//
// Lesson:  lessons/03_send_variants.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 03_send_variants
// By hand: send_variants, the server; send_variants --host ADDRESS, the client

#include "side.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>

using namespace rdmacommon;

namespace {

// [gather-scatter]
// Three places of the client become one message, which fills two places of the server.
void gather_and_scatter(const Side &side) {
  if (side.is_server) {
    side.fill(0, "");
    side.fill(1, "");
    std::array<ibv_sge, 2> where{side.slot(0, 6), side.slot(1)}; // filled in this order
    post_recv(side.qp, {.sg_list = where.data(), .num_sge = 2});
    side.exchange.send_done();
    side.wait_received();
    std::printf("scattered: \"%s\" and \"%s\"\n", side.slots[0].data(), side.slots[1].data());
  } else {
    side.fill(0, "type 7");
    side.fill(1, "gathered, ");
    side.fill(2, "not copied");
    std::array<ibv_sge, 3> what{side.slot(0, 6), side.slot(1, 10), side.slot(2, 10)};
    side.exchange.receive_done();
    post_send(side.qp, {.sg_list = what.data(),
                        .num_sge = 3,
                        .opcode = IBV_WR_SEND,
                        .send_flags = IBV_SEND_SIGNALED});
    side.wait_sent();
    std::printf("gathered 3 pieces into one message\n");
  }
}
// [gather-scatter]

// [inline]
// When does the NIC read the buffer? The server has no receive posted yet, so the client's NIC must
// send again. By then the client has changed its buffer. It may do so only with inline data.
void inline_data(const Side &side, unsigned flags) {
  const char *how = flags & IBV_SEND_INLINE ? "inline" : "not inline";
  if (side.is_server) {
    side.exchange.receive_done();
    side.receive_into(0);
    side.wait_received();
    std::printf("%s: received \"%s\"\n", how, side.slots[0].data());
  } else {
    side.fill(0, "first thought");
    ibv_sge what = side.slot(0, 16);
    post_send(side.qp, {.sg_list = &what,
                        .num_sge = 1,
                        .opcode = IBV_WR_SEND,
                        .send_flags = IBV_SEND_SIGNALED | flags});
    side.fill(0, "second thought");
    side.exchange.send_done(); // only now the server posts its receive
    side.wait_sent();
    std::printf("%s: posted \"first thought\", then changed the buffer\n", how);
  }
}
// [inline]

// [send-imm]
// Sends `length` bytes of a slot, and 32 bits that need no buffer.
void send_with_imm(const Side &side, uint32_t immediate, size_t slot = 0, size_t length = 0) {
  ibv_sge what = side.slot(slot, length);
  post_send(side.qp, {.sg_list = &what,
                      .num_sge = length ? 1 : 0,
                      .opcode = IBV_WR_SEND_WITH_IMM,
                      .send_flags = IBV_SEND_SIGNALED,
                      .imm_data = htonl(immediate)}); // network byte order, by convention
  side.wait_sent();
}

uint32_t immediate_of(const ibv_wc &done) {
  if (!(done.wc_flags & IBV_WC_WITH_IMM)) // then imm_data has no meaning
    throw Error("a receive", "the message has no immediate data");
  return ntohl(done.imm_data);
}
// [send-imm]

// [notification]
// Use 1: something has happened. There is no payload, so neither side needs a buffer.
void notification(const Side &side) {
  if (side.is_server) {
    post_recv(side.qp, {});
    side.exchange.send_done();
    const ibv_wc done = side.wait_received();
    std::printf("notified of event %u, in %u bytes\n", immediate_of(done), done.byte_len);
  } else {
    side.exchange.receive_done();
    send_with_imm(side, 42);
    std::printf("notified the server of event 42\n");
  }
}
// [notification]

// Use 2: the place of a fragment in a longer message: its number, and how many there are.
void fragments(const Side &side) {
  constexpr std::string_view whole = "a message in four fragments, sent last one first";
  constexpr uint32_t size = 12, count = whole.size() / size;
  if (side.is_server) {
    for (uint32_t number = 0; number < count; ++number)
      side.receive_into(number);
    side.exchange.send_done();
    std::array<ibv_wc, count> arrived;
    for (ibv_wc &done : arrived)
      done = side.wait_received();
    // [fragments]
    std::string assembled(whole.size(), '?');
    for (const ibv_wc &done : arrived) {
      const uint32_t fragment = immediate_of(done) >> 16, of = immediate_of(done) & 0xffff;
      if (of != count || fragment >= count || done.byte_len != size)
        throw Error("a fragment", "its number or its length is wrong");
      std::memcpy(&assembled[fragment * size], side.slots[done.wr_id].data(), size);
    }
    // [fragments]
    std::printf("reassembled \"%s\"\n", assembled.c_str());
  } else {
    side.exchange.receive_done();
    for (uint32_t fragment = count; fragment-- > 0;) {
      side.fill(0, whole.substr(fragment * size, size));
      send_with_imm(side, fragment << 16 | count, 0, size);
    }
    std::printf("sent %u fragments\n", count);
  }
}

// Use 3: the type of a message. The receiver knows it before it looks at a byte of the message.
void message_types(const Side &side) {
  enum Type : uint32_t { text = 1, number = 2 };
  if (side.is_server) {
    side.receive_into(0);
    side.receive_into(1);
    side.exchange.send_done();
    for (int messages = 2; messages > 0; --messages) {
      const ibv_wc done = side.wait_received();
      const char *data = side.slots[done.wr_id].data();
      uint32_t value = 0;
      switch (const uint32_t type = immediate_of(done)) {
      case text:
        std::printf("a text: \"%s\"\n", data);
        break;
      case number:
        std::memcpy(&value, data, sizeof value);
        std::printf("a number: %u\n", ntohl(value));
        break;
      default:
        throw Error("a message", "no type " + std::to_string(type));
      }
    }
  } else {
    side.exchange.receive_done();
    side.fill(0, "hello");
    send_with_imm(side, text, 0, 6);
    const uint32_t value = htonl(1024);
    std::memcpy(side.slots[0].data(), &value, sizeof value);
    send_with_imm(side, number, 0, sizeof value);
    std::printf("sent a text and a number\n");
  }
}

// [progress]
// Use 4: flow control. The sender waits for the receiver's report, so it always finds a receive.
void progress(const Side &side) {
  constexpr uint32_t chunks = 16, window = 4; // the server has 4 slots
  if (side.is_server) {
    for (uint32_t slot = 0; slot < window; ++slot)
      side.receive_into(slot);
    side.exchange.send_done();
    for (uint32_t chunk = 1; chunk <= chunks; ++chunk) {
      const ibv_wc done = side.wait_received();
      if (chunk + window <= chunks)
        side.receive_into(done.wr_id); // before the client hears that it may go on
      if (chunk % window == 0)
        send_with_imm(side, chunk);
    }
    std::printf("took %u chunks with %u receives\n", chunks, window);
  } else {
    for (uint32_t answer = 0; answer < chunks / window; ++answer)
      post_recv(side.qp, {}); // a report has no bytes, and needs no buffer
    side.exchange.receive_done();
    for (uint32_t chunk = 1; chunk <= chunks; ++chunk) {
      send_with_imm(side, chunk, 0, slot_size);
      if (chunk % window == 0)
        std::printf("the server has %u of %u chunks\n", immediate_of(side.wait_received()), chunks);
    }
  }
}
// [progress]

// A completion says that all requests before it in the queue are done as well. So it is enough to
// signal every fourth request, as long as the queue has room for those in between.
void selective_signaling(const Side &side) {
  constexpr uint32_t messages = receive_depth, every = 4;
  if (side.is_server) {
    for (uint32_t i = 0; i < messages; ++i)
      post_recv(side.qp, {});
    side.exchange.send_done();
    for (uint32_t i = 0; i < messages; ++i)
      side.wait_received();
    std::printf("received %u messages\n", messages);
  } else {
    side.exchange.receive_done();
    // [signaling]
    uint32_t completions = 0;
    for (uint32_t i = 1; i <= messages; ++i) {
      const unsigned flags = i % every == 0 ? IBV_SEND_SIGNALED : 0;
      post_send(side.qp, {.opcode = IBV_WR_SEND, .send_flags = flags});
      if (flags && i >= send_depth) { // the queue is full
        side.wait_sent();             // one completion frees the places of four requests
        ++completions;
      }
    }
    side.wait_sent();
    ++completions;
    // [signaling]
    std::printf("sent %u messages, and polled %u completions\n", messages, completions);
  }
}

// No verb queries the inline limit. The program asks for some bytes. ibv_create_qp refuses, or
// writes back how many bytes the queue pair really takes.
unique_qp create_qp(ibv_pd *pd, ibv_cq *sent, ibv_cq *received) {
  for (uint32_t wanted = 4096; wanted >= 16; wanted /= 2) {
    ibv_qp_init_attr attr{.send_cq = sent,
                          .recv_cq = received,
                          .cap = {.max_send_wr = send_depth,
                                  .max_recv_wr = receive_depth,
                                  .max_send_sge = 3,
                                  .max_recv_sge = 2,
                                  .max_inline_data = wanted},
                          .qp_type = IBV_QPT_RC};
    if (ibv_qp *qp = ibv_create_qp(pd, &attr)) {
      std::printf("a message of up to %u bytes can be inline\n", attr.cap.max_inline_data);
      return unique_qp(qp);
    }
  }
  throw_errno(errno, "ibv_create_qp");
}

void send_variants(int argc, char **argv) {
  CommandLine line{"Sends in every way that a SEND can be sent."};
  PairOptions options{line};
  line.parse(argc, argv);
  const Port port = open_port(options);
  Slots slots{};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &slots, sizeof slots, access);
  ibv_context *device = port.context.get();
  const unique_cq sent = create_cq(device, send_depth);
  const unique_cq received = create_cq(device, receive_depth);
  const unique_qp qp = create_qp(pd.get(), sent.get(), received.get());
  to_init(qp.get(), port);
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);
  const Side side{options.is_server(), options.timeout, exchange, slots, mr.get(),
                  sent.get(),          received.get(),  qp.get()};
  // For inline_data, where the receive comes late: code 30 is 328 ms.
  ibv_qp_attr attr{.min_rnr_timer = 30};
  check_rc(ibv_modify_qp(qp.get(), &attr, IBV_QP_MIN_RNR_TIMER), "ibv_modify_qp(RNR timer)");
  gather_and_scatter(side);
  inline_data(side, 0);
  inline_data(side, IBV_SEND_INLINE);
  notification(side);
  fragments(side);
  message_types(side);
  progress(side);
  selective_signaling(side);
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, send_variants);
}

// SPDX-License-Identifier: MIT
// The failures of 11_when_it_breaks: what each side does for one to happen, why it happens, how to
// fix it.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

constexpr size_t message_size = 64;
constexpr int send_depth = 8; // room of the send queue, in requests

// One end of a connection on which something is going to fail.
struct Side {
  ibv_qp *qp;
  ibv_cq *cq;
  ibv_mr *mr;         // in the queue pair's protection domain
  ibv_mr *foreign_mr; // the same memory, in another protection domain
  rdmacommon::RemoteMemory theirs;

  ibv_sge message(size_t length = message_size) const {
    return rdmacommon::piece(mr, mr->addr, length);
  }
};

inline void send(const Side &side, ibv_sge message) {
  rdmacommon::post_send(
      side.qp,
      {.sg_list = &message, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
}

inline void receive(const Side &side, size_t length = message_size) {
  ibv_sge room = side.message(length);
  rdmacommon::post_recv(side.qp, {.sg_list = &room, .num_sge = 1});
}

inline void write(const Side &side, uint64_t address, uint32_t rkey) {
  ibv_sge message = side.message();
  rdmacommon::post_send(side.qp, {.sg_list = &message,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .wr = {.rdma = {.remote_addr = address, .rkey = rkey}}});
}

inline void to_state(const Side &side, ibv_qp_state state, const char *call) {
  ibv_qp_attr attr{.qp_state = state};
  rdmacommon::check_rc(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE), call);
}

struct Failure {
  const char *name, *what, *why, *fix;
  void (*server)(const Side &); // first: what the server does, or leaves out
  void (*client)(const Side &); // then: the request that fails
  bool shares_foreign = false;  // the server tells of its region in the other protection domain
  bool is_event = false;        // no completion reports it
};

inline void one_receive(const Side &side) {
  receive(side);
}

// [failures]
constexpr std::array failures{
    Failure{"rnr", "SEND, and the server has posted no receive",
            "the server's NIC answered receiver not ready (RNR) until rnr_retry was used up",
            "post receives before the peer can send, and give it credits for them (lesson 05)",
            [](const Side &) {}, [](const Side &side) { send(side, side.message()); }},
    Failure{"retry-exceeded", "SEND, and the server's queue pair is not in RTR or RTS any more",
            "no answer came at all, and retry_cnt was used up: a queue pair that is in RESET drops "
            "packets",
            "find out why the peer is gone; or its GID, QPN or the network is wrong",
            [](const Side &side) { to_state(side, IBV_QPS_RESET, "ibv_modify_qp(RESET)"); },
            [](const Side &side) { send(side, side.message()); }},
    // [failures]
    Failure{
        "bad-rkey", "WRITE with an rkey that the server has not given out",
        "the server's NIC knows no region with this rkey",
        "use the rkey that the server sent (not its lkey), and ask again after it has registered "
        "anew",
        one_receive,
        [](const Side &side) { write(side, side.theirs.address, side.theirs.rkey ^ 0xffff00); }},
    Failure{"past-the-end", "WRITE one byte past the end of the region",
            "the server's NIC checks address and length against the region",
            "compare with the length that the server sent, before posting", one_receive,
            [](const Side &side) {
              write(side, side.theirs.address + side.theirs.length - message_size + 1,
                    side.theirs.rkey);
            }},
    Failure{"wrong-pd", "WRITE with the rkey of a region in another protection domain",
            "an rkey is good for the queue pairs of its own protection domain only",
            "register the memory in the protection domain of the queue pair", one_receive,
            [](const Side &side) { write(side, side.theirs.address, side.theirs.rkey); }, true},
    Failure{"no-permission", "READ, which the server's queue pair does not allow",
            "IBV_ACCESS_REMOTE_READ is not in the queue pair's qp_access_flags",
            "allow it on the region and on the queue pair (lesson 04)", one_receive,
            [](const Side &side) {
              ibv_sge here = side.message();
              rdmacommon::post_send(side.qp, {.sg_list = &here,
                                              .num_sge = 1,
                                              .opcode = IBV_WR_RDMA_READ,
                                              .send_flags = IBV_SEND_SIGNALED,
                                              .wr = {.rdma = {.remote_addr = side.theirs.address,
                                                              .rkey = side.theirs.rkey}}});
            }},
    Failure{"bad-lkey", "SEND from memory in another protection domain",
            "the client's own NIC checks lkey, address and length before it reads the memory",
            "use the lkey of a region in the queue pair's protection domain", one_receive,
            [](const Side &side) {
              send(side, rdmacommon::piece(side.foreign_mr, side.foreign_mr->addr, message_size));
            }},
    Failure{"too-long", "SEND of 64 bytes, and the receive has room for 8",
            "a message must fit into the receive that it finds, whole",
            "agree on the largest message, and post receives of that size",
            [](const Side &side) { receive(side, 8); },
            [](const Side &side) { send(side, side.message()); }},
    Failure{"flush", "the client moves its own queue pair to the error state",
            "in the error state every posted request comes back, unexecuted, with status 5",
            "nothing to fix: do this to get your requests back before you destroy a queue pair",
            one_receive,
            [](const Side &side) {
              receive(side);
              to_state(side, IBV_QPS_ERR, "ibv_modify_qp(ERR)");
            }},
    Failure{"cq-overrun", "one completion more than the completion queue has room for",
            "the program did not poll, and the device has no place for the next completion, which "
            "is lost",
            "make the queue as large as all that may be under way (and poll)", one_receive,
            [](const Side &side) {
              for (int i = 0; i < std::min(side.cq->cqe + 1, send_depth); ++i)
                write(side, side.theirs.address, side.theirs.rkey);
            },
            false, true},
};

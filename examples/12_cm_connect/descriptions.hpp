// SPDX-License-Identifier: MIT
// The messages of client and server: private data say how much memory the client needs, and a SEND
// says where it is. For cm_server.cpp and cm_client.cpp.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <endian.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

// The private data of a client's request, and of the server's answer and rejection: 16 bytes.
struct Announcement {
  rdmacommon::Greeting greeting; // version of the sender, and why the server rejects
  uint64_t length;               // the client: bytes that it needs; the server: bytes that it gives
};
// A reason of this example's own. rdmacommon's reasons are small numbers.
constexpr rdmacommon::Refusal refused_length{256};

inline Announcement announce(uint64_t length, rdmacommon::Refusal why = rdmacommon::Refusal::none) {
  return {.greeting = rdmacommon::greeting(why), .length = htobe64(length)};
}

// The length in the private data that came with an event. A peer that sends a Greeting alone
// announces 0 bytes.
inline uint64_t length_in(const rdma_conn_param &came) {
  Announcement told{};
  if (came.private_data != nullptr && came.private_data_len >= sizeof told)
    std::memcpy(&told, came.private_data, sizeof told); // it may lie at any address
  return be64toh(told.length);
}

// Unsignaled: if it fails, so does what comes after it.
inline void send_description(ibv_qp *qp, const ibv_mr *mine) {
  using namespace rdmacommon;
  const Description out = describe(mine);
  ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(&out), .length = sizeof out, .lkey = 0};
  post_send(qp, {.sg_list = &sge,
                 .num_sge = 1,
                 .opcode = IBV_WR_SEND,
                 .send_flags = IBV_SEND_INLINE}); // inline data needs no region
  std::printf("mine    %s\n", to_line(share(mine)).c_str());
}

// @param theirs what the receive that was posted before the connection was made fills
inline rdmacommon::RemoteMemory receive_description(ibv_qp *qp,
                                                    const rdmacommon::Description &theirs,
                                                    std::chrono::seconds timeout) {
  using namespace rdmacommon;
  ibv_wc done{};
  wait_for_completions(qp->recv_cq, {&done, 1}, "the peer's description", timeout); // asleep
  check_wc(done, "the peer's description");
  const RemoteMemory memory = parse_description(theirs, done.byte_len);
  std::printf("theirs  %s\n", to_line(memory).c_str());
  return memory;
}

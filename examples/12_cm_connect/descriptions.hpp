// Telling the other side of one's memory, and being told, by a SEND. For cm_server.cpp and cm_client.cpp.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdio>

// [descriptions]
// Unsignaled: if it fails, so does what comes after it.
inline void send_description(ibv_qp *qp, const ibv_mr *mine) {
  using namespace rdmacommon;
  const Description out = describe(mine);
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(&out), .length = sizeof out, .lkey = 0};
  post_send(qp, {.sg_list = &sge,
                 .num_sge = 1,
                 .opcode = IBV_WR_SEND,
                 .send_flags = IBV_SEND_INLINE}); // which needs no region
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
  const RemoteMemory memory = described(theirs, done.byte_len);
  std::printf("theirs  %s\n", to_line(memory).c_str());
  return memory;
}
// [descriptions]

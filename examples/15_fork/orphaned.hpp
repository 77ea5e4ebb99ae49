// SPDX-License-Identifier: MIT
// 15_fork, case `orphaned`: a process that has died, and whose memory a peer can still READ.
#pragma once

#include "child.hpp"
#include "linked.hpp"
#include "resources.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>
#include <spawn.h>

#include <array>
#include <string>

// Shares a text, starts a helper, and ends without cleaning up, as by a crash.
inline void doomed_owner(const rdmacommon::DeviceOptions &options, const Link &reader,
                         Link &helpers, bool cure, Limit limit) {
  const Mapped<Text> memory(AtFork::copied);
  put(*memory, "the memory of a dead process");
  const Linked rdma(options, &*memory, text_size, {.max_recv_wr = 1, .max_recv_sge = 1},
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  rdma.send_endpoint(reader);
  reader.send(to_line(rdmacommon::share(rdma.mr.get())));
  rdma.to_rtr(reader, limit);
  if (cure) { // exec closes every file that is close-on-exec, and those of verbs all are
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, helpers.fd(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, helpers.fd(), STDOUT_FILENO);
    std::array<char *, 2> cat{const_cast<char *>("cat"), nullptr};
    pid_t pid = 0;
    rdmacommon::check_rc(posix_spawnp(&pid, cat[0], &files, nullptr, cat.data(), environ),
                         "posix_spawnp");
    posix_spawn_file_actions_destroy(&files);
  } else if (rdmacommon::check_errno(fork(), "fork") == 0) {
    if (helpers.can_receive(limit)) // the same by hand, and the device is open all the while
      helpers.send(helpers.receive(limit));
    is_readable(helpers.fd(), 8 * limit);
    _exit(0);
  }
  reader.send("dying");
  _exit(0);
}

inline Outcome orphaned(const rdmacommon::DeviceOptions &options, bool cure, Limit limit) {
  auto ends = make_link();
  Link &ours = ends.first, &helpers = ends.second; // when ours closes, the helper ends
  Child owner([&](const Link &reader) {
    ours = Link();
    doomed_owner(options, reader, helpers, cure, limit);
  });
  helpers = Link();
  const Mapped<Text> memory(AtFork::copied);
  const Linked rdma(options, &*memory, text_size, {.max_send_wr = 1, .max_send_sge = 1});
  rdma.to_rtr(owner.link(), limit);
  const auto theirs = rdmacommon::parse_remote_memory(owner.link().receive(limit));
  rdmacommon::to_rts(rdma.qp.get(), rdma.psn);
  rdma.send_endpoint(owner.link());
  owner.link().receive(limit);
  owner.wait(limit); // it is dead now
  ours.send("are you there?");
  ours.receive(limit);
  ibv_sge here = rdmacommon::piece(rdma.mr.get(), &*memory, text_size);
  rdmacommon::post_send(rdma.qp.get(),
                        {.sg_list = &here,
                         .num_sge = 1,
                         .opcode = IBV_WR_RDMA_READ,
                         .send_flags = IBV_SEND_SIGNALED,
                         .wr = {.rdma = {.remote_addr = theirs.address, .rkey = theirs.rkey}}});
  const auto done = rdmacommon::poll_within(rdma.cq.get(), 2 * limit);
  if (!done)
    throw rdmacommon::Error("the READ", "it does not end");
  const std::string seen = "the owner is dead, its helper lives on; a READ of its memory: ";
  if (done->status == IBV_WC_SUCCESS)
    return {false, seen + '"' + get(*memory) + '"'};
  return {true,
          seen + "status " + std::to_string(done->status) + ", " + ibv_wc_status_str(done->status)};
}

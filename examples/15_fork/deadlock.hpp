// SPDX-License-Identifier: MIT
// 15_fork, case `deadlock`: n receives are too few for n + m requests, so both sides wait forever.
#pragma once

#include "child.hpp"
#include "linked.hpp"
#include "resources.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>
#include <deque>
#include <string>

constexpr unsigned n = 4, m = 2;
constexpr unsigned worker_count = 2;

// A slot for a request that comes in, and for the reply that goes out. It is shared memory: the
// workers read and write it.
struct SlotText {
  Text request, reply;
};
using Slots = std::array<SlotText, n>;

// [pool]
// Counts the users of each slot: the worker that answers it, and the SEND that carries the answer.
// The last of them posts the slot's receive again.
class Pool {
public:
  explicit Pool(const Linked &rdma, Slots &slots) : rdma_(rdma), slots_(slots) {
    for (unsigned slot = 0; slot < n; ++slot)
      post(slot);
  }
  void let_go(unsigned slot) {
    if (--users_[slot] == 0)
      post(slot);
  }
  // [pool]
  unsigned users(unsigned slot) const { return users_[slot]; }
  unsigned posted() const { return posted_; }

private:
  void post(unsigned slot) {
    users_[slot] = 2;
    ibv_sge room = rdmacommon::piece(rdma_.mr.get(), &slots_[slot].request, text_size);
    rdmacommon::post_recv(rdma_.qp.get(), {.wr_id = slot, .sg_list = &room, .num_sge = 1});
    ++posted_;
  }

  const Linked &rdma_;
  Slots &slots_;
  std::array<unsigned, n> users_{};
  unsigned posted_ = 0;
};

// As many programs have it, "so that it never fails": 7 means forever.
inline void to_rts_forever(const Linked &rdma) {
  ibv_qp_attr attr{.qp_state = IBV_QPS_RTS,
                   .sq_psn = rdma.psn,
                   .max_rd_atomic = 1,
                   .timeout = 14,
                   .retry_cnt = 7,
                   .rnr_retry = 7};
  const int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
                   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  rdmacommon::check_rc(ibv_modify_qp(rdma.qp.get(), &attr, mask), "ibv_modify_qp(RTS)");
}

// Answers slot after slot. `pool` is null in a worker that was forked before there was one.
inline void work(const Link &server, Slots &slots, Pool *pool, Limit limit) {
  for (;;) {
    const std::string said = server.receive(8 * limit);
    if (said == "count") {
      std::string counts;
      for (unsigned slot = 0; pool && slot < n; ++slot)
        counts += "  " + std::to_string(pool->users(slot));
      return server.send(pool ? counts : "nothing");
    }
    // [worker]
    const auto slot = static_cast<unsigned>(std::stoul(said));
    put(slots.at(slot).reply, "reply to " + get(slots[slot].request));
    server.send(said); // the server sends it
    if (pool)
      pool->let_go(slot);
    // [worker]
  }
}

// Sends n + m requests at once, and waits for as many replies.
// @param last how long for each of the last m, which may never come
inline void client(const rdmacommon::DeviceOptions &options, const Link &server, Limit limit,
                   Limit last) {
  const Mapped<std::array<Text, 2 * (n + m)>> memory(AtFork::copied);
  const Linked rdma(
      options, &*memory, sizeof *memory,
      {.max_send_wr = n + m, .max_recv_wr = n + m, .max_send_sge = 1, .max_recv_sge = 1});
  for (unsigned i = 0; i < n + m; ++i) {
    ibv_sge room = rdmacommon::piece(rdma.mr.get(), &(*memory)[n + m + i], text_size);
    rdmacommon::post_recv(rdma.qp.get(), {.wr_id = i, .sg_list = &room, .num_sge = 1});
  }
  rdma.send_endpoint(server);
  rdma.to_rtr(server, limit);
  to_rts_forever(rdma);
  for (unsigned i = 0; i < n + m; ++i) {
    put((*memory)[i], "request " + std::to_string(i));
    ibv_sge what = rdmacommon::piece(rdma.mr.get(), &(*memory)[i], text_size);
    rdmacommon::post_send(rdma.qp.get(), {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND});
  }
  unsigned replies = 0;
  while (replies < n + m) {
    const auto done = rdmacommon::poll_within(rdma.cq.get(), replies < n ? limit : last);
    if (!done)
      break;
    rdmacommon::check_wc(*done, "a reply");
    ++replies;
  }
  server.send(std::to_string(replies));
  server.receive(limit); // its last acknowledgement may still be on its way
}

inline Outcome deadlock(const rdmacommon::DeviceOptions &options, bool cure, Limit limit) {
  const Mapped<Slots> slots(AtFork::shared);
  const Limit last = cure ? limit : Limit(2500);
  Child asking([&](const Link &server) { client(options, server, limit, last); });
  std::deque<Child> workers;
  // [workers]
  const auto hire = [&](Pool *pool) {
    for (unsigned i = 0; i < worker_count; ++i)
      workers.emplace_back([&](const Link &server) { work(server, *slots, pool, limit); });
  };
  if (cure)
    hire(nullptr); // first the processes, then the device
  const Linked rdma(options, &*slots, sizeof *slots,
                    {.max_send_wr = n, .max_recv_wr = n, .max_send_sge = 1, .max_recv_sge = 1});
  Pool pool(rdma, *slots);
  if (!cure)
    hire(&pool);
  // [workers]
  rdma.to_rtr(asking.link(), limit);
  rdmacommon::to_rts(rdma.qp.get(), rdma.psn);
  rdma.send_endpoint(asking.link());

  unsigned requests = 0, sent = 0;
  // Until the client has all, or is tired of waiting, and what was sent to it is acknowledged.
  while (!asking.link().can_receive() || sent < requests) {
    if (const auto done = rdmacommon::poll_within(rdma.cq.get(), Limit(1))) {
      rdmacommon::check_wc(*done, "a request or a reply");
      const auto slot = static_cast<unsigned>(done->wr_id % n);
      if (done->wr_id == slot) { // a receive: a request is there
        workers[requests++ % worker_count].link().send(std::to_string(slot));
      } else { // a SEND: the reply has been acknowledged
        pool.let_go(slot);
        ++sent;
      }
    }
    for (const Child &worker : workers)
      if (worker.link().can_receive()) {
        // [reply]
        const auto slot = static_cast<unsigned>(std::stoul(worker.link().receive(limit)));
        ibv_sge reply = rdmacommon::piece(rdma.mr.get(), &slots->at(slot).reply, text_size);
        rdmacommon::post_send(rdma.qp.get(), {.wr_id = n + slot,
                                              .sg_list = &reply,
                                              .num_sge = 1,
                                              .opcode = IBV_WR_SEND,
                                              .send_flags = IBV_SEND_SIGNALED});
        if (cure)
          pool.let_go(slot); // the worker's share; the worker has said so
        // [reply]
      }
  }
  const std::string replies = asking.link().receive(limit);
  std::printf("deadlock%s\n  client: %u requests posted, %s replies\n"
              "  server: %u receives posted, %u requests, %u replies sent\n",
              cure ? ", cured" : "", n + m, replies.c_str(), pool.posted(), requests, sent);
  for (unsigned i = 0; i < worker_count; ++i) {
    workers[i].link().send("count");
    const std::string counts = workers[i].link().receive(limit);
    if (!cure)
      std::printf("  users of slots 0 to %u, says worker %u:%s\n", n - 1, i, counts.c_str());
  }
  std::string counts;
  for (unsigned slot = 0; slot < n; ++slot)
    counts += "  " + std::to_string(pool.users(slot));
  std::printf("  users of slots 0 to %u, says the server:%s\n", n - 1, counts.c_str());
  asking.link().send("enough");
  asking.wait(limit);
  const bool all = replies == std::to_string(n + m);
  return {all, std::to_string(n + m) + " requests, " + replies + " replies" +
                   (all ? "" : "; the client waits, the workers wait, the server waits")};
}

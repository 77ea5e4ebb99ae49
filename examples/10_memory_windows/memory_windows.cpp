// SPDX-License-Identifier: MIT
// 10_memory_windows: opens a part of a region to one peer, with a part of the rights, and closes it
// again.
//
// Lesson:  lessons/10_memory_windows.md
// Needs:   an RDMA device with memory windows on both sides. Exit status 77 without.
// Run:     ./lab run 10_memory_windows
// By hand: memory_windows                 the server, whose memory it is
//          memory_windows --host ADDRESS  the client, which uses what it is granted, and then more

#include "bind_alone.hpp"
#include "connection.hpp"
#include "grant.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

using namespace rdmacommon;

namespace {

using std::chrono::milliseconds;

// [tell]
// Unsignaled: the client's next request may break this queue pair before the acknowledgement of
// this SEND arrives.
void post_grant(ibv_qp *qp, const Window &window) {
  const Grant grant = to_grant(window);
  ibv_sge what{.addr = reinterpret_cast<uintptr_t>(&grant), .length = sizeof grant, .lkey = 0};
  post_send(qp,
            {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE});
}
// [tell]

// [type-2]
// Type 2: the bind is a work request, and the program that posts it chooses the new rkey.
void bind_type_2(ibv_qp *qp, ibv_mw *mw, const ibv_mw_bind_info &what) {
  const uint32_t rkey = ibv_inc_rkey(mw->rkey); // not the last one: old grants stay invalid
  post_send(qp, {.opcode = IBV_WR_BIND_MW,
                 .send_flags = IBV_SEND_SIGNALED,
                 .bind_mw = {.mw = mw, .rkey = rkey, .bind_info = what}});
  mw->rkey = rkey; // the next bind must name it
}
// [type-2]

// [type-1]
// Type 1: a separate verb, which chooses the rkey. It posts to the send queue, too.
void bind_type_1(ibv_qp *qp, ibv_mw *mw, const ibv_mw_bind_info &what) {
  ibv_mw_bind bind{.send_flags = IBV_SEND_SIGNALED, .bind_info = what};
  check_rc(ibv_bind_mw(qp, mw, &bind), "ibv_bind_mw");
}
// [type-1]

// [take-back]
// When this has completed, the rkey opens nothing any more. The peer cannot prevent that.
void take_back(const Connection &to, ibv_mw *mw, ibv_mr *mr, std::chrono::seconds timeout) {
  if (mw->type == IBV_MW_TYPE_2)
    post_send(
        to.qp.get(),
        {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mw->rkey});
  else { // type 1 has no invalidation: bind 0 bytes instead
    ibv_mw_bind bind{.send_flags = IBV_SEND_SIGNALED, .bind_info = {.mr = mr}};
    check_rc(ibv_bind_mw(to.qp.get(), mw, &bind), "ibv_bind_mw(0 bytes)");
  }
  wait_for_completion(to.sent.get(), "taking the window back", timeout);
}
// [take-back]

// [given-back]
// SoftRoCE sets the kernel's bit, IB_WC_WITH_INVALIDATE. In user space this bit is another flag,
// IBV_WC_IP_CSUM_OK, which has no meaning on a reliable connection.
constexpr unsigned with_invalidate = IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK;

// The NIC has invalidated the window that the peer's SEND named. Is it the window that we lent?
void check_given_back(const ibv_wc &done, uint32_t rkey) {
  check_wc(done, "the client's message");
  if ((done.wc_flags & with_invalidate) == 0)
    throw Error("the client's message", "it gives nothing back");
  if (done.invalidated_rkey != rkey)
    throw Error("the client's message", "it gives back another window");
}
// [given-back]

struct ServerSide {
  const Port &port;
  const PairOptions &options;
  ibv_pd *pd;
  ibv_mr *mr;
  milliseconds lease;
};

void serve(const ServerSide &with, const Case &now, Exchange &exchange) {
  const Connection to(with.port, with.pd);
  to_init(to.qp.get(), with.port, read_write); // the window says which of them applies
  // For "I give it back" and "I have finished". If one fails, only its wr_id says which it was.
  post_recv(to.qp.get(), {.wr_id = 1});
  post_recv(to.qp.get(), {.wr_id = 2});
  connect(to.qp.get(), with.port, exchange, with.options);
  std::optional<Loopback> other;

  // [serve]
  // Declared after the queue pairs, so that it is destroyed before the one on which it is bound.
  const unique_mw mw(check_ptr(ibv_alloc_mw(with.pd, now.type), "ibv_alloc_mw"));
  const ibv_mw_bind_info what{.mr = with.mr,
                              .addr = reinterpret_cast<uintptr_t>(with.mr->addr) + window_at,
                              .length = window_size,
                              .mw_access_flags = now.access};
  const auto bind = now.type == IBV_MW_TYPE_1 ? bind_type_1 : bind_type_2;
  if (now.bound_on_other) { // there is no order between two queue pairs: wait for the bind
    bind(other.emplace(with.port, with.pd).qp.get(), mw.get(), what);
    check_wc(other->next("the bind"), "the bind");
    post_grant(to.qp.get(), {mw->rkey, what.addr, what.length, now.access});
  } else { // on one queue pair the NIC sends the grant after the bind: no need to wait
    bind(to.qp.get(), mw.get(), what);
    post_grant(to.qp.get(), {mw->rkey, what.addr, what.length, now.access});
    wait_for_completion(to.sent.get(), "the bind", with.options.timeout); // did it work?
  }
  const char *end = "kept";
  if (now.end != WindowEnd::kept) {
    const bool owed = now.end == WindowEnd::given_back;
    const milliseconds limit = owed ? with.options.timeout : with.lease;
    if (const auto done = next_completion(to.received.get(), limit)) {
      check_given_back(*done, mw->rkey);
      end = "given back";
    } else {
      take_back(to, mw.get(), with.mr, with.options.timeout);
      post_send(to.qp.get(), {.opcode = IBV_WR_SEND}); // the notice
      end = owed ? "NOT given back, taken" : "taken back";
    }
  }
  const auto done = next_completion(to.received.get(), with.options.timeout);
  if (!done)
    throw Error("the client's last message", "it does not come");
  std::printf("%-11s  %-22s  %-25s  %s\n", now.name, end, ibv_wc_status_str(done->status),
              state_now(to.qp.get()));
  exchange.receive_done();
  // [serve]
  exchange.finish();
}

struct ClientSide {
  const Port &port;
  const PairOptions &options;
  ibv_pd *pd;
};

// READs or WRITEs `here` through the window. @return how it went
ibv_wc_status use(const Connection &to, ibv_wr_opcode opcode, ibv_sge here, uint64_t address,
                  uint32_t rkey, std::chrono::seconds timeout) {
  post_send(to.qp.get(), {.sg_list = &here,
                          .num_sge = 1,
                          .opcode = opcode,
                          .send_flags = IBV_SEND_SIGNALED,
                          .wr = {.rdma = {.remote_addr = address, .rkey = rkey}}});
  const auto done = next_completion(to.sent.get(), timeout);
  if (!done)
    throw Error("an access through the window", "no completion in time");
  return done->status;
}

void request(const ClientSide &with, const Case &now) {
  struct {
    Grant grant;
    std::array<char, probe_size> out, in;
  } memory{};
  std::snprintf(memory.out.data(), memory.out.size(), "%s was here", now.name);
  constexpr int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(with.pd, &memory, sizeof memory, access);
  const Connection to(with.port, with.pd);
  to_init(to.qp.get(), with.port);
  ibv_sge grant = piece(mr.get(), &memory.grant, sizeof memory.grant);
  post_recv(to.qp.get(), {.sg_list = &grant, .num_sge = 1});
  post_recv(to.qp.get(), {}); // the notice that the window is taken back
  post_recv(to.qp.get(), {}); // only to be flushed: then the QP is in ERR
  Exchange exchange(with.options);
  connect(to.qp.get(), with.port, exchange, with.options);

  const auto timeout = with.options.timeout;
  // [client]
  const ibv_wc told = wait_for_completion(to.received.get(), "the grant", timeout);
  const Window window = from_grant(memory.grant, told.byte_len);
  const ibv_sge out = piece(mr.get(), memory.out.data(), probe_size);
  const ibv_sge in = piece(mr.get(), memory.in.data(), probe_size);

  if (!now.bound_on_other) { // the window is for this connection, and works
    if (window.access & IBV_ACCESS_REMOTE_WRITE)
      check_status(use(to, IBV_WR_RDMA_WRITE, out, window.address, window.rkey, timeout), "WRITE");
    check_status(use(to, IBV_WR_RDMA_READ, in, window.address, window.rkey, timeout), "READ");
    if ((window.access & IBV_ACCESS_REMOTE_WRITE) && memory.in != memory.out)
      throw Error("the window", "what was read is not what was written");
  }
  if (now.end == WindowEnd::given_back) {
    post_send(to.qp.get(), {.opcode = IBV_WR_SEND_WITH_INV,
                            .send_flags = IBV_SEND_SIGNALED,
                            .invalidate_rkey = window.rkey});
    wait_for_completion(to.sent.get(), "giving the window back", timeout);
  } else if (now.end == WindowEnd::taken_back) {
    wait_for_completion(to.received.get(), "the server's notice", timeout);
  }
  const ibv_wc_status status =
      use(to, now.probe, now.probe == IBV_WR_RDMA_READ ? in : out,
          window.address + static_cast<uint64_t>(now.at), window.rkey, timeout);
  // [client]
  if (status != IBV_WC_SUCCESS) // the completion may come just before the QP changes its state
    next_completion(to.received.get(), timeout);
  std::printf("%-11s  %-26s  %-25s  %s\n", now.name, now.in_words, ibv_wc_status_str(status),
              state_now(to.qp.get()));
  if (now.at < 0 && status == IBV_WC_SUCCESS) // this NIC checks only the region's bounds
    std::printf("%-11s  ... and it brought \"%.24s\"\n", now.name, memory.in.data());
  if (status == IBV_WC_SUCCESS) {
    post_send(to.qp.get(), {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    wait_for_completion(to.sent.get(), "the last message", timeout);
  }
  exchange.send_done();
  exchange.finish();
}

void memory_windows(int argc, char **argv) {
  CommandLine line{"Grants a part of a region to one peer, and revokes it."};
  PairOptions options{line};
  std::string only = "all";
  int lease = 1000, times = 200;
  line.add("--case", only, "one case alone, by its name, as on the other side [all]", 16);
  line.add("--lease", lease, "ms after which the server takes a window back [1000]", 1, 60'000);
  line.add("--times", times, "how often to bind and to register, or 0: do not measure [200]", 0,
           100'000);
  line.parse(argc, argv);

  const Port port = open_port(options);
  require_windows(port.context.get());
  const unique_pd pd = alloc_pd(port.context.get());
  const auto wanted = [&](const Case &now) { return only == "all" || only == now.name; };
  if (!options.is_server()) {
    std::printf("%-11s  %-26s  %-25s  %s\n", "case", "what I did", "came to", "my QP");
    for (const Case &now : cases)
      if (wanted(now))
        request({port, options, pd.get()}, now);
    return;
  }
  if (only == "all") {
    refused_binds(port, pd.get());
    if (times > 0)
      measure_binding(port, pd.get(), times);
  }
  // [register]
  // No REMOTE flag: the region itself is closed. MW_BIND lets windows open it.
  static std::array<char, region_size> memory{};
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  const unique_mr mr = reg_mr(pd.get(), memory.data(), memory.size(), access);
  // [register]
  std::strcpy(memory.data() + window_at - probe_size, "nobody was granted this");
  std::optional<Exchange> exchange; // closed after the listener: who sees it closed comes too late
  Listener listener(options);
  std::printf("%-11s  %-22s  %-25s  %s\n", "case", "the window", "my receive", "my QP");
  for (const Case &now : cases)
    if (wanted(now))
      serve({port, options, pd.get(), mr.get(), milliseconds(lease)}, now,
            exchange.emplace(listener.accept()));
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, memory_windows);
}

// SPDX-License-Identifier: MIT
// A peer of 10_memory_windows that does one thing wrong: for test_windows.py. It talks to `--case
// given-back`.
#include "grant.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <cstdio>
#include <string>

using namespace rdmacommon;

namespace {

struct Liar {
  ibv_qp *qp;
  ibv_cq *cq;
  ibv_mr *mr;
  Grant &grant;
  std::chrono::seconds timeout;

  void as_client(const std::string &lie) const {
    ibv_wc done = wait_for_completion(cq, "the grant", timeout);
    const Window window = from_grant(grant, done.byte_len);
    ibv_sge here = piece(mr, &grant, sizeof grant);
    ibv_send_wr read{.sg_list = &here,
                     .num_sge = 1,
                     .opcode = IBV_WR_RDMA_READ,
                     .send_flags = IBV_SEND_SIGNALED,
                     .wr = {.rdma = {.remote_addr = window.address, .rkey = window.rkey}}};
    if (lie == "plain")
      post_send(qp, {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    else if (lie == "other-key")
      post_send(qp, {.opcode = IBV_WR_SEND_WITH_INV,
                     .send_flags = IBV_SEND_SIGNALED,
                     .invalidate_rkey = ibv_inc_rkey(window.rkey)});
    else if (lie == "silence") { // until the server waits no longer
      wait_for_completion(cq, "the notice", timeout);
      post_send(qp, read);
      while (check_count(ibv_poll_cq(cq, 1, &done), "ibv_poll_cq") == 0)
        ;
      std::printf("too late: %s\n", ibv_wc_status_str(done.status));
    }
  }

  void as_server(const std::string &lie) const {
    grant = to_grant({.rkey = 0x1234, .address = 1U << 20, .length = 1024, .access = read_write});
    if (lie == "version")
      grant.version = htobe32(2);
    else if (lie == "rights")
      grant.rights = htobe32(0xff);
    else if (lie == "no-rights")
      grant.rights = 0;
    else if (lie == "small")
      grant.length = htobe64(probe_size - 1);
    else if (lie == "wraps")
      grant.address = htobe64(~0ULL - 1024);
    else if (lie == "long")
      grant.length = htobe64(~0ULL);
    ibv_sge here = piece(mr, &grant, lie == "short" ? sizeof grant - 1 : sizeof grant);
    if (lie != "silence")
      post_send(
          qp,
          {.sg_list = &here, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  }
};

void lying_window(int argc, char **argv) {
  CommandLine line{"Talks to memory_windows, and lies."};
  PairOptions options{line};
  std::string lie, only;
  line.add("--lie", lie, "what is wrong");
  line.add("--case", only, "ignored: it is what the other side is told");
  line.parse(argc, argv);

  const Port port = open_port(options);
  static Grant grant{};
  const unique_pd pd = alloc_pd(port.context.get());
  constexpr int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &grant, sizeof grant, access);
  const unique_cq cq = create_cq(port.context.get(), 16);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(),
                   {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1});
  to_init(qp.get(), port);
  ibv_sge where = piece(mr.get(), &grant, sizeof grant);
  post_recv(qp.get(), {.sg_list = &where, .num_sge = 1});
  post_recv(qp.get(), {});
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);
  const Liar liar{qp.get(), cq.get(), mr.get(), grant, options.timeout * 3};
  if (options.is_server())
    liar.as_server(lie);
  else
    liar.as_client(lie);
  if (lie == "silence" && !options.is_server())
    exchange.send_done();
  exchange.finish(); // once the other side has had enough
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_window);
}

// SPDX-License-Identifier: MIT
// Exercise 04.1 (★): write one entry of a table that lies in the other side's memory.
// Wanted:   entry 5 becomes 42, and no other entry changes; the client does not READ.
// Hints: ./lab hint 04.1
// Check: ./lab check 04.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

void one_entry(int argc, char **argv) {
  CommandLine line{"Writes one entry of the server's table."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  std::array<uint32_t, 8> table{};
  if (options.is_server())
    table = {0, 10, 20, 30, 40, 50, 60, 70};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &table, sizeof table, access);
  const unique_cq cq = create_cq(port.context.get(), 1);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_send_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));

  if (options.is_server()) {
    exchange.receive_done();
    for (const uint32_t &entry : table)
      std::printf("%u%c", entry, &entry == &table.back() ? '\n' : ' ');
  } else {
    table[5] = 42;
    // TODO: this is the whole table.
    ibv_sge what = piece(mr.get(), table.data(), sizeof table);
    const uint64_t where = theirs.address;
    post_send(qp.get(), {.sg_list = &what,
                         .num_sge = 1,
                         .opcode = IBV_WR_RDMA_WRITE,
                         .send_flags = IBV_SEND_SIGNALED,
                         .wr = {.rdma = {.remote_addr = where, .rkey = theirs.rkey}}});
    wait_for_completion(cq.get(), "the WRITE", options.timeout);
    // Enough on SoftRoCE. Elsewhere the word over TCP can overtake the data: READ back before it,
    // or tell the peer by a SEND on the same queue pair (lessons 04 and 05).
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, one_entry);
}

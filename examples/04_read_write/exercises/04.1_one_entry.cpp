// SPDX-License-Identifier: MIT
// Exercise 04.1 (★): write one entry of a table that lies in the other side's memory.
// Wanted:   entry 5 becomes 42, and no other entry changes. The client does not READ the
//           table first.
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
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const unique_mr mr = reg_mr(pd.get(), &table, sizeof table, access);
  const unique_cq cq = create_cq(port.context.get(), 1);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_send_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));

  if (options.is_server()) {
    exchange.receive_done();
    for (const uint32_t &entry : table)
      std::printf("%u%c", entry, &entry == &table.back() ? '\n' : ' ');
  } else {
    const auto request = [&](ibv_wr_opcode opcode, ibv_sge ours, uint64_t address) {
      post_send(qp.get(), {.sg_list = &ours,
                           .num_sge = 1,
                           .opcode = opcode,
                           .send_flags = IBV_SEND_SIGNALED,
                           .wr = {.rdma = {.remote_addr = address, .rkey = theirs.rkey}}});
      wait_for_completion(cq.get(), "a request", options.timeout);
    };
    table[5] = 42;
    // TODO: this is the whole table.
    request(IBV_WR_RDMA_WRITE, piece(mr.get(), table.data(), sizeof table), theirs.address);
    // When this READ has completed, what the WRITE has written is in the server's memory.
    request(IBV_WR_RDMA_READ, piece(mr.get(), &table[0], sizeof table[0]), theirs.address);
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, one_entry);
}

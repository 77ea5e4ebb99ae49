// SPDX-License-Identifier: MIT
// A peer of 30_device_memory that does one thing wrong: for test_directory.py. As the server it
// lies about what there is, as a client it lies to the server.
#include "directory.hpp"
#include "remote_words.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <cstdio>
#include <optional>
#include <string>

using namespace rdmacommon;

namespace {

struct Mine {
  Directory directory;
  uint64_t result;
};

void as_server(const std::string &lie, ibv_qp *qp, ibv_cq *cq, ibv_mr *mr, Mine &mine) {
  Directory &said = mine.directory;
  said = {.version = htobe32(1),
          .you = htobe32(1),
          .locks = htobe32(8),
          .counters = htobe32(8),
          .counters_address = htobe64(1 << 20),
          .counters_rkey = htobe32(0x1234),
          .reserved = 0};
  if (lie == "few-locks")
    said.locks = htobe32(7);
  ibv_sge here = piece(mr, &said, lie == "short" ? sizeof said - 4 : sizeof said);
  post_send(
      qp, {.sg_list = &here, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  wait_for_completion(cq, "the directory", std::chrono::seconds(5));
}

void lying_directory(int argc, char **argv) {
  CommandLine line{"Talks to device_memory, and lies."};
  PairOptions options{line};
  std::string lie;
  line.add("--lie", lie, "what is wrong");
  line.parse(argc, argv);

  const Port port = open_port(options);
  static Mine mine{};
  const unique_pd pd = alloc_pd(port.context.get());
  constexpr int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &mine, sizeof mine, access);
  const unique_cq cq = create_cq(port.context.get(), 4);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(),
                   {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1});
  to_init(qp.get(), port);
  if (lie != "no-receive") {
    ibv_sge where = piece(mr.get(), &mine.directory, sizeof mine.directory);
    post_recv(qp.get(), {.sg_list = &where, .num_sge = 1});
  }
  Exchange exchange(options);
  const RemoteMemory chip =
      connect(qp.get(), port, exchange, options, {.address = 0, .rkey = mr->rkey, .length = 65536});
  if (options.is_server()) {
    as_server(lie, qp.get(), cq.get(), mr.get(), mine);
    exchange.finish();
    return;
  }
  if (lie == "no-receive") {
    exchange.finish();
    return;
  }
  const ibv_wc got = wait_for_completion(cq.get(), "the directory", options.timeout);
  const Known known = from_directory(mine.directory, got.byte_len, chip);
  RemoteWords words(qp.get(), cq.get(), mr.get(), mine.result, chip, options.timeout);
  words.compare_swap(lock_at(5), 0, known.me);
  std::printf("process %u has lock 5\n", known.me);
  if (lie == "done-with-lock")
    exchange.send_done();
  else // a message that is no "done"
    exchange.send(Endpoint{.mtu = IBV_MTU_1024});
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_directory);
}

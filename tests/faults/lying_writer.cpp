// SPDX-License-Identifier: MIT
// A peer of 05_write_with_imm that does one thing wrong: for test_fragments.py.
#include "fragments.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <string>

using namespace rdmacommon;

namespace {

struct Liar {
  ibv_qp *qp;
  ibv_cq *send_cq, *recv_cq;
  ibv_mr *mr;
  FragmentMemory &memory;
  RemoteMemory theirs;

  // `length` bytes at `offset`, which say of themselves that they are `run`.
  void write(Run run, uint32_t length, uint64_t offset = 0) const {
    ibv_sge local = piece(mr, &memory, length);
    post_send(qp, {.sg_list = &local,
                   .num_sge = 1,
                   .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                   .send_flags = IBV_SEND_SIGNALED,
                   .imm_data = to_immediate(run),
                   .wr = {.rdma = {.remote_addr = theirs.address + offset, .rkey = theirs.rkey}}});
    wait_for_completion(send_cq, "the lie", std::chrono::seconds(5));
  }

  void as_client(const std::string &lie) const {
    constexpr uint32_t full = fragment_size;
    if (lie == "first")
      write({1, 1}, full);
    else if (lie == "count")
      write({0, 5}, 4 * full);
    else if (lie == "too-many")
      write({0, 17}, full);
    else if (lie == "most")
      write({0xffffff, 255}, full);
    else if (lie == "end")
      write({0, 0}, 0); // and no summary
    else if (lie == "end-with-data")
      write({0, 0}, 1);
    else if (lie == "past-the-end")
      write({0, 1}, full, sizeof(FragmentMemory));
    else if (lie == "send")
      post_send(qp, {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    else if (lie == "not-full")
      write({0, 1}, 100), write({1, 1}, 100);
    else if (lie == "summary") {
      write({0, 1}, full);
      ibv_sge local = piece(mr, &memory.summary, sizeof(Summary));
      memory.summary = {.version = htobe64(1), .bytes = htobe64(full), .checksum = 0};
      post_send(qp,
                {.sg_list = &local,
                 .num_sge = 1,
                 .opcode = IBV_WR_RDMA_WRITE,
                 .wr = {.rdma = {.remote_addr = theirs.address + offsetof(FragmentMemory, summary),
                                 .rkey = theirs.rkey}}});
      write({1, 0}, 0);
    }
  }

  void as_server(const std::string &lie) const {
    wait_for_completion(recv_cq, "the first message", std::chrono::seconds(5));
    if (lie == "first")
      write({1, 1}, 0);
    else if (lie == "too-many")
      write({0, 17}, 0);
    else if (lie == "none")
      write({0, 0}, 0);
    else if (lie == "send")
      post_send(qp, {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  }
};

void lying_writer(int argc, char **argv) {
  CommandLine line{"Talks to write_with_imm, and lies."};
  PairOptions options{line};
  std::string lie;
  line.add("--lie", lie, "what is wrong");
  line.parse(argc, argv);

  const Port port = open_port(options);
  static FragmentMemory memory{};
  const unique_pd pd = alloc_pd(port.context.get());
  constexpr unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &memory, sizeof memory, access);
  const unique_cq send_cq(ibv_create_cq(port.context.get(), 64, nullptr, nullptr, 0));
  const unique_cq recv_cq(ibv_create_cq(port.context.get(), 64, nullptr, nullptr, 0));
  const unique_qp qp = create_rc_qp(pd.get(), check_ptr(send_cq.get(), "ibv_create_cq"),
                                    check_ptr(recv_cq.get(), "ibv_create_cq"),
                                    {.max_send_wr = 8, .max_recv_wr = 32, .max_send_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
  for (int i = 0; i < 32; ++i)
    post_recv(qp.get(), {});
  Exchange exchange(options);
  RemoteMemory mine = share(mr.get());
  if (lie == "memory")
    mine.length /= 2;
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, mine);
  const Liar liar{qp.get(), send_cq.get(), recv_cq.get(), mr.get(), memory, theirs};
  if (options.is_server())
    liar.as_server(lie);
  else
    liar.as_client(lie);
  exchange.finish(); // once the other side has had enough
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_writer);
}

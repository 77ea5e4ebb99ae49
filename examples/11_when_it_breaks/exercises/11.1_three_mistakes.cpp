// SPDX-License-Identifier: MIT
// Exercise 11.1 (★★): three mistakes, one behind the other.
// Wanted:   the client SENDs a question, and the server WRITEs the answer into the client's memory.
// Hints: ./lab hint 11.1
// Check: ./lab check 11.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>
#include <cstring>

using namespace rdmacommon;

namespace {

void three_mistakes(int argc, char **argv) {
  CommandLine line{"Asks a question, and gets an answer."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  std::array<char, 64> text{};
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const unique_mr mr = reg_mr(pd.get(), text.data(), text.size(), access);
  const unique_cq cq = create_cq(port.context.get(), 2);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(),
                   {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1});
  to_init(qp.get(), port);
  ibv_sge all = piece(mr.get(), text.data(), text.size());
  if (options.is_server()) {
    ibv_sge room = piece(mr.get(), text.data(), 16);
    post_recv(qp.get(), {.sg_list = &room, .num_sge = 1});
  }
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));

  if (options.is_server()) {
    wait_for_completion(cq.get(), "the question", options.timeout);
    std::printf("asked: \"%s\"\n", text.data());
    std::strcpy(text.data(), "forty-two");
    ibv_sge answer = piece(mr.get(), text.data(), 2 * text.size());
    post_send(qp.get(), {.sg_list = &answer,
                         .num_sge = 1,
                         .opcode = IBV_WR_RDMA_WRITE,
                         .send_flags = IBV_SEND_SIGNALED,
                         .wr = {.rdma = {.remote_addr = theirs.address, .rkey = theirs.rkey}}});
    wait_for_completion(cq.get(), "the answer", options.timeout);
    exchange.send_done();
  } else {
    std::strcpy(text.data(), "what do you get if you multiply six by seven?");
    post_send(
        qp.get(),
        {.sg_list = &all, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    wait_for_completion(cq.get(), "the question", options.timeout);
    exchange.receive_done();
    std::printf("answered: \"%s\"\n", text.data());
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, three_mistakes);
}

// SPDX-License-Identifier: MIT
// Three clients of 09_shared_receive in one process, of which the second does one thing wrong: for
// test_shared_receive.py.
#include "numbered.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <arpa/inet.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <optional>
#include <span>
#include <string>

using namespace rdmacommon;

namespace {

constexpr uint32_t messages = 20;
// More than all credits together, --limit 5, and fewer than the receives, --pool 10: a client that
// takes the last receive costs the honest ones their connections, since their retries end. A buffer
// for each: the NIC may read them after the last post.
constexpr uint32_t greedy_messages = 6;

struct Buffer {
  Message message;
  std::array<uint8_t, 1024> more; // for a message that is too long
};

// A client with its verbs objects.
struct Side {
  unique_cq cq;
  unique_qp qp;
  std::optional<Exchange> exchange;
};

void post(const Side &side, const ibv_mr *mr, const Buffer &buffer, size_t length) {
  ibv_sge what = piece(mr, &buffer, length);
  post_recv(side.qp.get(), {});
  post_send(
      side.qp.get(),
      {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
}

void lie_of(Side &side, const ibv_mr *mr, std::span<Buffer, greedy_messages> buffers,
            const std::string &lie) {
  Buffer &buffer = buffers[0];
  size_t length = sizeof(Message);
  fill(buffer.message, 1, messages - 2);
  if (lie == "long")
    length = sizeof(Buffer);
  else if (lie == "short")
    length = 100;
  else if (lie == "nothing")
    length = 0;
  else if (lie == "version")
    buffer.message.version = htonl(2);
  else if (lie == "number")
    buffer.message.number = htonl(7);
  else if (lie == "left") // it asks for all there is, and takes what it gets; then it is gone
    buffer.message.left = 0xffffffff;
  else if (lie == "data")
    buffer.message.data[1000] ^= 1;
  else if (lie == "dies")
    _exit(3);
  if (lie == "imm") {
    post_send(side.qp.get(),
              {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED});
  } else if (lie == "done") {
    side.exchange->send_done();
  } else if (lie == "deaf") { // no receive for the answer
    ibv_sge what = piece(mr, &buffer, length);
    post_send(
        side.qp.get(),
        {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  } else if (lie == "greedy") {
    for (uint32_t number = 1; number <= greedy_messages; ++number) {
      Buffer &next = buffers[number - 1];
      fill(next.message, number, messages - number - 1);
      post(side, mr, next, length);
    }
  } else if (lie != "silent") {
    post(side, mr, buffer, length);
  }
}

void lying_clients(int argc, char **argv) {
  CommandLine line{"Three clients of shared_receive, of which the second lies."};
  PairOptions options{line};
  std::string lie;
  line.add("--lie", lie, "what is wrong");
  line.parse(argc, argv);

  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  static std::array<Buffer, 3 + greedy_messages> buffers{}; // the lie's are the last ones
  const unique_mr mr = reg_mr(pd.get(), &buffers, sizeof buffers, 0);
  std::array<Side, 3> clients;
  for (Side &side : clients) {
    side.cq = create_cq(port.context.get(), 64);
    side.qp = create_rc_qp(pd.get(), side.cq.get(),
                           {.max_send_wr = 16, .max_recv_wr = 32, .max_send_sge = 1});
    to_init(side.qp.get(), port);
    side.exchange.emplace(options, Where::here());
    if (lie == "exchange" && &side == &clients[1])
      side.exchange->send_done(); // "done" is no address
    else
      connect(side.qp.get(), port, *side.exchange, options);
  }
  const auto send_one = [&](size_t i, uint32_t number) {
    fill(buffers[i].message, number, messages - number - 1);
    post(clients[i], mr.get(), buffers[i], sizeof(Message));
    for (int completions = 0; completions < 2; ++completions) // the message's, and the answer's
      wait_for_completion(clients[i].cq.get(), "a message or its answer", std::chrono::seconds(10));
  };
  for (uint32_t number = 0; number < messages; ++number)
    for (size_t i = 0; i < clients.size(); ++i)
      if (i != 1 || (number == 0 && lie != "exchange"))
        send_one(i, number);
      else if (number == 1 && lie != "exchange")
        lie_of(clients[1], mr.get(), std::span(buffers).last<greedy_messages>(), lie);
  clients[0].exchange->send_done();
  clients[2].exchange->send_done();
  std::printf("the honest ones have all their answers\n");
  if (lie == "left")
    clients[1].exchange.reset();
  clients[0].exchange->finish();
  clients[2].exchange->finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_clients);
}

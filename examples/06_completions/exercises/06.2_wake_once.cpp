// SPDX-License-Identifier: MIT
// Exercise 06.2 (★): wake me for the last one.
// Wanted:   the client sends ten messages, and the server is woken once, when all of them are
//           there.
// Hints: ./lab hint 06.2
// Check: ./lab check 06.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <poll.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr int messages = 10;

void server(Exchange &exchange, ibv_comp_channel *channel, ibv_cq *cq) {
  exchange.receive_done(); // nine have arrived
  std::printf("nine messages: %s\n", take_event(channel) == nullptr ? "asleep" : "woken too early");
  exchange.send_done();
  pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
  if (check_errno(poll(&readable, 1, 1000), "poll") == 0)
    throw Error("the last message", "no event within 1000 ms");
  take_event(channel);
  std::array<ibv_wc, messages> done{};
  std::printf("woken, for %zu messages\n", poll_batch(cq, done));
}

void wake_once(int argc, char **argv) {
  CommandLine line{"Sleeps until the last of ten messages is there."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  ibv_context *device = port.context.get();
  const unique_pd pd = alloc_pd(device);
  const unique_comp_channel channel = create_comp_channel(device);
  const unique_cq cq = create_cq(device, messages, channel.get());
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_recv_wr = messages});
  to_init(qp.get(), port);
  if (options.is_server()) {
    for (int i = 0; i < messages; ++i)
      post_recv(qp.get(), {});
    // TODO: not for every completion.
    check_rc(ibv_req_notify_cq(cq.get(), 0), "ibv_req_notify_cq");
  }
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);

  if (options.is_server()) {
    server(exchange, channel.get(), cq.get());
  } else {
    for (int i = 1; i <= messages; ++i) {
      if (i == messages) {
        exchange.send_done(); // the others have arrived
        exchange.receive_done();
      }
      // TODO: which of them is worth waking the server for?
      post_send(qp.get(), {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
      wait_for_completion(cq.get(), "a SEND", options.timeout);
    }
    std::printf("sent %d messages\n", messages);
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, wake_once);
}

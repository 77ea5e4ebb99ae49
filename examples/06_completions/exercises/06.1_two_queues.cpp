// SPDX-License-Identifier: MIT
// Exercise 06.1 (★): two completion queues, one channel.
// Wanted:   the server sleeps until the client's three messages have come *and* its own three
//           answers are done. Both completion queues report to one channel.
// Hints: ./lab hint 06.1
// Check: ./lab check 06.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <poll.h>

#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr int messages = 3;

void sleep_until_event(const ibv_comp_channel *channel) {
  pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
  if (check_errno(poll(&readable, 1, 1000), "poll") == 0)
    throw Error("the next event", "none within 1000 ms");
}

void server(ibv_qp *qp, ibv_comp_channel *channel, ibv_cq *sent, ibv_cq *received) {
  int came = 0, answered = 0;
  while (came < messages || answered < messages) {
    sleep_until_event(channel);
    while (take_event(channel) != nullptr) {
      ibv_cq *cq = received; // TODO: is it always this one?
      check_rc(ibv_req_notify_cq(cq, 0),
               "ibv_req_notify_cq"); // armed, and then polled until it is empty
      for (ibv_wc done{}; poll_batch(cq, {&done, 1}) == 1;) {
        check_wc(done, cq == sent ? "an answer" : "a message");
        if (cq == sent) {
          ++answered;
        } else {
          ++came;
          post_send(qp, {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
        }
      }
    }
  }
  std::printf("%d messages came, and %d answers are done\n", came, answered);
}

void two_queues(int argc, char **argv) {
  CommandLine line{"Sleeps on two completion queues."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  ibv_context *device = port.context.get();
  const unique_pd pd = alloc_pd(device);
  const unique_comp_channel channel = create_comp_channel(device);
  const auto create_armed_cq = [&] {
    unique_cq cq = create_cq(device, messages, channel.get());
    check_rc(ibv_req_notify_cq(cq.get(), 0), "ibv_req_notify_cq"); // before anything can complete
    return cq;
  };
  const unique_cq sent = create_armed_cq(), received = create_armed_cq();
  ibv_qp_init_attr attr{.send_cq = sent.get(),
                        .recv_cq = received.get(),
                        .cap = {.max_send_wr = messages, .max_recv_wr = messages},
                        .qp_type = IBV_QPT_RC};
  const unique_qp qp(check_ptr(ibv_create_qp(pd.get(), &attr), "ibv_create_qp"));
  to_init(qp.get(), port);
  for (int i = 0; i < messages; ++i)
    post_recv(qp.get(), {});
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);

  if (options.is_server()) {
    server(qp.get(), channel.get(), sent.get(), received.get());
  } else {
    for (int i = 0; i < messages; ++i) {
      post_send(qp.get(), {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
      wait_for_completion(sent.get(), "a SEND", options.timeout);
      wait_for_completion(received.get(), "an answer", options.timeout);
    }
    std::printf("%d messages sent, and as many answers received\n", messages);
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, two_queues);
}

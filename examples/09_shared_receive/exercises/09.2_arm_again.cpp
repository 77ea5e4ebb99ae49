// SPDX-License-Identifier: MIT
// Exercise 09.2 (★): forty messages with eight receives.
// Wanted:   a queue pair that is connected to itself sends forty messages, one after the other. Its
//           shared receive queue has room for eight. Whenever fewer than three are left, an event
//           says so, and all are posted again.
// Hints: ./lab hint 09.2
// Check: ./lab check 09.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <fcntl.h>

#include <cstdio>

using namespace rdmacommon;

namespace {

constexpr uint32_t pool_size = 8, limit = 3;

void arm(ibv_srq *srq) {
  ibv_srq_attr attr{.srq_limit = limit};
  check_rc(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), "ibv_modify_srq(LIMIT)");
}

bool limit_reached(ibv_context *device) {
  ibv_async_event event{};
  if (ibv_get_async_event(device, &event) != 0)
    return false; // there is none: it does not block
  const bool reached = event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED;
  ibv_ack_async_event(&event);
  return reached;
}

void arm_again(int argc, char **argv) {
  CommandLine line{"Sends forty messages with eight receives."};
  DeviceOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  check_errno(fcntl(port.context->async_fd, F_SETFL, O_NONBLOCK), "fcntl(O_NONBLOCK)");
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq sent = create_cq(port.context.get(), pool_size);
  const unique_cq received = create_cq(port.context.get(), pool_size);
  ibv_srq_init_attr attr{.attr = {.max_wr = pool_size, .max_sge = 1}};
  const unique_srq srq(check_ptr(ibv_create_srq(pd.get(), &attr), "ibv_create_srq"));
  const unique_qp qp =
      create_rc_qp(pd.get(), sent.get(), received.get(), srq.get(), {.max_send_wr = 1});
  connect_to_itself(qp.get(), port);

  uint32_t missing = pool_size, refills = 0;
  const auto refill = [&] {
    for (; missing > 0; --missing)
      post_srq_recv(srq.get(), {}); // the messages have no data
  };
  arm(srq.get());
  refill();
  for (int i = 0; i < 40; ++i) {
    post_send(qp.get(), {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    wait_for_completion(sent.get(), "the message", std::chrono::seconds(5));
    wait_for_completion(received.get(), "the receive", std::chrono::seconds(5));
    ++missing;
    if (limit_reached(port.context.get())) {
      refill(); // TODO: and the next time?
      ++refills;
    }
  }
  std::printf("40 messages, and the receives were posted again %u times\n", refills);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, arm_again);
}

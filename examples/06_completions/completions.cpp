// SPDX-License-Identifier: MIT
// 06_completions: a program that sleeps until something has completed, and what can go wrong.
//
// Lesson:  lessons/06_completions.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 06_completions
// By hand: completions                 the server, which waits for messages
//          completions --host ADDRESS  the client, which sends them

#include "loopback.hpp"
#include "ways_to_wait.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <future>

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

// The server continues when all `count` SENDs have arrived: the client reports that they have
// completed.
void messages_arrive(const Side &side, int count, unsigned last = 0) {
  if (side.is_server) {
    side.post_receives(count);
    side.exchange.send_done();
    side.exchange.receive_done();
  } else {
    side.exchange.receive_done();
    for (int i = 1; i <= count; ++i) {
      side.send(IBV_SEND_SIGNALED | (i == count ? last : 0));
      side.wait_sent();
    }
    side.exchange.send_done();
  }
}

// For an event that must be there, or is about to be.
void sleep_for_event(const Side &side) {
  constexpr milliseconds limit{2000};
  if (!side.sleep.until_event(limit))
    throw Error(
        "the completion", "no event within 2000 ms",
        "a completion from before ibv_req_notify_cq makes no event, nor does an unsolicited "
        "one if the CQ is armed for solicited ones; see "
        "lessons/troubleshooting.md#missed-event");
}

int events_in(const Side &side) {
  int events = 0;
  while (take_event(side.channel))
    ++events;
  return events;
}

// [one-event]
// One arming gives one event, for any number of completions that come after it.
void one_event(const Side &side) {
  if (side.is_server)
    check_rc(ibv_req_notify_cq(side.received, 0), "ibv_req_notify_cq");
  messages_arrive(side, 3);
  if (side.is_server) {
    sleep_for_event(side);
    std::printf("armed once:     3 messages, %d event\n", events_in(side));
    poll_batches(side, 3);
  }
  messages_arrive(side, 1);
  if (side.is_server) {
    std::printf("not armed:      1 message, %d events\n", events_in(side));
    poll_batches(side, 1);
  }
}
// [one-event]

// [missed-event]
// A message that comes between the poll and the arming (here on purpose) raises no event. So the
// program must poll again.
void missed_event(const Side &side) {
  if (side.is_server && poll_batch_once(side) != 0)
    throw Error("the CQ", "it should be empty");
  messages_arrive(side, 1);
  if (!side.is_server)
    return;
  check_rc(ibv_req_notify_cq(side.received, 0), "ibv_req_notify_cq");
  int count = poll_batch_once(side);
  std::printf("armed too late: %d events, but %d message\n", events_in(side), count);
  while (count == 0) {
    sleep_for_event(side);
    events_in(side);
    count = poll_batch_once(side);
  }
}
// [missed-event]

// [solicited]
// The sender decides which message raises an event. The last experiment has left the CQ armed for
// any message. The first message uses up this arming.
void solicited(const Side &side) {
  messages_arrive(side, 1);
  if (side.is_server) {
    sleep_for_event(side);
    events_in(side);
    poll_batches(side, 1);
    check_rc(ibv_req_notify_cq(side.received, 1), "ibv_req_notify_cq(solicited)");
  }
  messages_arrive(side, 9);
  if (side.is_server)
    std::printf("solicited only: 9 messages, %d events\n", events_in(side));
  messages_arrive(side, 1, IBV_SEND_SOLICITED);
  if (side.is_server) {
    sleep_for_event(side);
    std::printf("solicited only: 1 that is, %d event\n", events_in(side));
    poll_batches(side, 10);
  }
}
// [solicited]

// A CQ cannot be destroyed while the program has an event of it that it has not acknowledged.
void unacknowledged(const Port &port, ibv_pd *pd, const Side &side) {
  Loopback loop(port, pd, side.channel, 1);
  check_rc(ibv_req_notify_cq(loop.receives.get(), 0), "ibv_req_notify_cq");
  post_recv(loop.qp.get(), {});
  post_send(loop.qp.get(), {.opcode = IBV_WR_SEND});
  ibv_cq *cq = nullptr;
  void *context = nullptr;
  int status = 0;
  do {
    sleep_for_event(side);
    status = ibv_get_cq_event(side.channel, &cq, &context);
  } while (status != 0 && errno == EAGAIN); // the channel does not block: sleep again
  check_errno(status, "ibv_get_cq_event");

  loop.qp.reset();
  auto destroyed = std::async(std::launch::async, ibv_destroy_cq, loop.receives.release());
  if (destroyed.wait_for(milliseconds(200)) == std::future_status::timeout)
    std::printf("ibv_destroy_cq: waits, since an event is not acknowledged\n");
  ibv_ack_cq_events(cq, 1);
  check_rc(destroyed.get(), "ibv_destroy_cq");
  std::printf("ibv_destroy_cq: done, since it is acknowledged\n");
}

// One completion more than the CQ says it has room for.
void overrun(const Port &port, ibv_pd *pd, const Side &side) {
  Loopback loop(port, pd, nullptr, 4);
  const int room = loop.sends->cqe, messages = std::min(room + 1, loop.depth);
  for (int i = 0; i < messages; ++i)
    post_recv(loop.qp.get(), {});
  for (int i = 0; i < messages; ++i) {
    post_send(loop.qp.get(), {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    wait_for_completion(loop.receives.get(), "a receive", std::chrono::seconds(5));
  }
  std::printf("overrun:        asked for 4, room for %d, %d SENDs; %s\n", room, messages,
              overrun_event(port.context.get(), loop.sends.get(), side.timeout));
  int polled = 0;
  for (ibv_wc done{}; check_count(ibv_poll_cq(loop.sends.get(), 1, &done), "ibv_poll_cq") == 1;
       ++polled)
    check_wc(done, "a SEND");
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  check_rc(ibv_query_qp(loop.qp.get(), &attr, IBV_QP_STATE, &init), "ibv_query_qp");
  std::printf("overrun:        %d completions polled, the queue pair is %s RTS\n", polled,
              attr.qp_state == IBV_QPS_RTS ? "still in" : "no longer in");
}

void completions(int argc, char **argv) {
  CommandLine line{"Sleeps until messages have come, and shows how an event gets lost."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  ibv_context *device = port.context.get();
  const unique_pd pd = alloc_pd(device);
  const unique_comp_channel channel = create_channel(device);
  const unique_cq sent = create_cq(device, queue_depth);
  const unique_cq received = create_cq(device, queue_depth, channel.get());
  const unique_qp qp = create_rc_qp(pd.get(), sent.get(), received.get(),
                                    {.max_send_wr = queue_depth, .max_recv_wr = queue_depth});
  to_init(qp.get(), port);
  Exchange exchange(options);
  connect(qp.get(), port, exchange, options);
  const Sleep sleep(device, channel.get());
  const Side side{options.is_server(), options.timeout, exchange, channel.get(), sleep,
                  received.get(),      sent.get(),      qp.get()};
  one_event(side);
  missed_event(side);
  solicited(side);
  if (side.is_server) {
    unacknowledged(port, pd.get(), side);
    overrun(port, pd.get(), side);
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, completions);
}

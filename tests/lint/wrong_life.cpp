// SPDX-License-Identifier: MIT
// Cases about the life of objects, processes and threads.

#include "cases.hpp"

#include <rdmacommon/ud_queue_pair.hpp>

#include <atomic>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace cases {
namespace {

const Add leak("leak", [](const DeviceOptions &options, bool wrong) {
  const Port port = open_port(options);
  unique_pd pd = alloc_pd(port.context.get());
  if (wrong)
    pd.release();
});

const Add destroy_order("destroy-order", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  ibv_cq *cq = pair.sent.get();
  if (!wrong)
    pair.a.reset();
  if (!ibv_destroy_cq(cq))
    pair.sent.release();
});

const Add use_after_destroy("use-after-destroy", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  ibv_mr *mr = pair.mr.get();
  pair.mr.reset();
  if (wrong)
    (void)ibv_dereg_mr(mr);
});

// A child polls the queue that it has inherited, or leaves it alone.
const Add child_use("child-use", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  const pid_t child = check_errno(fork(), "fork");
  if (!child) {
    ibv_wc wc{};
    if (wrong)
      (void)ibv_poll_cq(pair.sent.get(), 1, &wc);
    _exit(0);
  }
  int status = 0;
  check_errno(waitpid(child, &status, 0), "waitpid");
});

// One thread waits for an event of the channel that another destroys.
const Add destroyed_in_use("destroyed-in-use", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.with_channel = true});
  std::atomic<pid_t> waiting{0};
  std::thread waits([&] {
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    waiting = static_cast<pid_t>(syscall(SYS_gettid));
    check_errno(ibv_get_cq_event(pair.channel.get(), &cq, &context), "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
  });
  if (wrong) {
    while (!waiting || !sleeps(waiting))
      std::this_thread::yield(); // there is no event for "it is inside the call"
    (void)ibv_destroy_comp_channel(pair.channel.get()); // refused: its CQ exists
  }
  check_rc(ibv_req_notify_cq(pair.received.get(), 0), "ibv_req_notify_cq");
  pair.receive();
  pair.send();
  waits.join();
  wait(pair.received.get());
});

// The second thread ends what the first has begun.
const Add two_threads("two-threads", [](const DeviceOptions &options, bool wrong) {
  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq cq = create_cq(port.context.get(), 4);
  const unique_qp qp = create_extended_qp(pd.get(), cq.get());
  ud_to_rts(qp.get(), port, our_qkey);
  ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp.get());
  const auto begin = [&] { ibv_wr_start(extended); };
  if (wrong)
    std::thread(begin).join();
  else
    begin();
  (void)ibv_wr_complete(extended); // nothing was built
});

} // namespace
} // namespace cases

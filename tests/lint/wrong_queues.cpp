// SPDX-License-Identifier: MIT
// Cases about queues, completions and events.

#include "cases.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

// poll() in a program that is built with _FORTIFY_SOURCE.
extern "C" int __poll_chk(pollfd *fds, nfds_t count, int timeout, std::size_t size);

namespace cases {
namespace {

const Add cq_too_small("cq-too-small", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options,
            {.cap = {.max_send_wr = 4, .max_recv_wr = 40, .max_send_sge = 1, .max_recv_sge = 1},
             .cqe = 8});
  for (int i = 0; i < (wrong ? 40 : 8) && i < (wrong ? 40 : pair.received->cqe); ++i)
    pair.receive();
});

const Add never_signaled("never-signaled", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                      .qp_access = IBV_ACCESS_REMOTE_WRITE});
  ibv_sge what = pair.at(0, 8);
  for (int i = 0; i < 300; ++i) { // more than any provider rounds 4 up to
    ibv_send_wr request{.wr_id = static_cast<std::uint64_t>(i), .sg_list = &what, .num_sge = 1};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma = {.remote_addr = reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page,
                       .rkey = pair.mr->rkey};
    request.send_flags = wrong || i % 2 == 0 ? 0u : unsigned{IBV_SEND_SIGNALED};
    ibv_send_wr *bad = nullptr;
    if (ibv_post_send(pair.a.get(), &request, &bad))
      return;
    if (request.send_flags)
      wait(pair.sent.get());
  }
});

const Add queue_full("queue-full", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  ibv_sge what = pair.at(0, 8);
  for (int i = 0; i < 300; ++i) {
    ibv_send_wr request{.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND};
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr *bad = nullptr;
    if (!wrong)
      pair.receive();
    if (ibv_post_send(pair.a.get(), &request, &bad))
      return;
    if (!wrong) {
      wait(pair.sent.get());
      wait(pair.received.get());
    }
  }
});

// b is destroyed with a receive posted, or after the receive has been flushed.
const Add destroyed_with_posts("destroyed-with-posts", [](const DeviceOptions &options,
                                                          bool wrong) {
  Pair pair(options);
  pair.receive();
  if (!wrong) {
    ibv_qp_attr attr{.qp_state = IBV_QPS_ERR};
    check_rc(ibv_modify_qp(pair.b.get(), &attr, IBV_QP_STATE), "ibv_modify_qp(ERR)");
    next(pair.received.get());
  }
  pair.b.reset();
  ibv_wc wc{};
  check_count(ibv_poll_cq(pair.received.get(), 1, &wc), "ibv_poll_cq");
});

const Add completion_of_destroyed("completion-of-destroyed",
                                  [](const DeviceOptions &options, bool wrong) {
                                    Pair pair(options);
                                    pair.receive();
                                    pair.send();
                                    wait(pair.sent.get());
                                    if (wrong)
                                      pair.b.reset();
                                    wait(pair.received.get());
                                  });

void arm(ibv_cq *cq) {
  check_rc(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

void take_event(const Pair &pair) {
  ibv_cq *cq = nullptr;
  void *context = nullptr;
  check_errno(ibv_get_cq_event(pair.channel.get(), &cq, &context), "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
}

// One that polls the wrong CQ arms again and waits.
const Add cq_not_polled("cq-not-polled", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.with_channel = true});
  pair.receive();
  pair.receive();
  for (int i = 0; i < 2; ++i) {
    arm(pair.received.get());
    ibv_wc wc{};
    if (!wrong || i == 0)
      check_count(ibv_poll_cq(pair.received.get(), 1, &wc), "ibv_poll_cq");
    pair.send();
    take_event(pair);
    wait(wrong ? pair.sent.get() : pair.received.get());
  }
});

// Waits until the descriptor can be read.
using WaitFor = void(int fd);

void wait_by_poll(int fd) {
  pollfd one{.fd = fd, .events = POLLIN};
  check_errno(poll(&one, 1, -1), "poll");
}

void wait_by_poll_chk(int fd) {
  pollfd one{.fd = fd, .events = POLLIN};
  check_errno(__poll_chk(&one, 1, -1, sizeof one), "poll");
}

void wait_by_select(int fd) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  check_errno(select(fd + 1, &set, nullptr, nullptr, nullptr), "select");
}

void wait_by_epoll(int fd) {
  const int epoll = check_errno(epoll_create1(0), "epoll_create1");
  epoll_event one{.events = EPOLLIN};
  check_errno(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &one), "epoll_ctl");
  check_errno(epoll_wait(epoll, &one, 1, -1), "epoll_wait");
  close(epoll);
}

// By ibv_get_cq_event, or by this other way, with a channel that does not block.
Case no_poll(WaitFor *wait_for) {
  return [wait_for](const DeviceOptions &options, bool wrong) {
    Pair pair(options, {.with_channel = true});
    const int fd = pair.channel->fd, other = check_errno(eventfd(1, 0), "eventfd");
    if (wait_for)
      check_errno(fcntl(fd, F_SETFL, O_NONBLOCK), "fcntl");
    pair.receive();
    arm(pair.received.get());
    ibv_wc wc{};
    if (!wrong)
      check_count(ibv_poll_cq(pair.received.get(), 1, &wc), "ibv_poll_cq");
    pair.send();
    if (wait_for)
      wait_for(fd);
    take_event(pair);
    wait(pair.received.get());
    if (!wrong && wait_for) { // for something else, by an epoll instance with a closed one's number
      pair.receive();
      pair.send();
      arm(pair.received.get());
      wait_for(other);
      wait(pair.received.get());
    }
    if (!wrong) { // at its end, a program need not take what has made an event
      pair.receive();
      arm(pair.received.get());
      pair.send();
      wait(pair.sent.get());
      wait(pair.sent.get());
    }
    close(other);
  };
}

const Add no_poll_after_arm("no-poll-after-arm", no_poll(nullptr));
const Add no_poll_before_poll("no-poll-after-arm, poll", no_poll(wait_by_poll));
const Add no_poll_before_poll_chk("no-poll-after-arm, poll_chk", no_poll(wait_by_poll_chk));
const Add no_poll_before_select("no-poll-after-arm, select", no_poll(wait_by_select));
const Add no_poll_before_epoll("no-poll-after-arm, epoll", no_poll(wait_by_epoll));

// Three completions are there, and the program takes two at a time. A fourth makes the event.
const Add full_batch("full-batch", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.with_channel = true});
  std::array<ibv_wc, 2> two{};
  const auto poll = [&] {
    return check_count(ibv_poll_cq(pair.received.get(), 2, two.data()), "ibv_poll_cq");
  };
  for (int i = 0; i < 4; ++i)
    pair.receive();
  arm(pair.received.get());
  poll();
  for (int i = 0; i < 3; ++i) {
    pair.send();
    wait(pair.sent.get());
  }
  take_event(pair);
  arm(pair.received.get());
  while (poll() == 2 && !wrong)
    ;
  pair.send();
  take_event(pair);
  next(pair.received.get());
});

// A thread sends signals until the wait has been interrupted.
const Add interrupted("interrupted", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.with_channel = true});
  struct sigaction action = {}; // without SA_RESTART
  action.sa_handler = [](int) {};
  check_errno(sigaction(SIGUSR1, &action, nullptr), "sigaction");
  pair.receive();
  arm(pair.received.get());
  ibv_wc wc{};
  check_count(ibv_poll_cq(pair.received.get(), 1, &wc), "ibv_poll_cq");
  std::atomic<bool> over{false};
  std::thread sender([&over, thread = pthread_self(), id = gettid()] {
    while (!over)
      if (sleeps(id))
        pthread_kill(thread, SIGUSR1);
  });
  ibv_cq *cq = nullptr;
  void *context = nullptr;
  const int result = ibv_get_cq_event(pair.channel.get(), &cq, &context);
  const int error = errno;
  over = true;
  sender.join();
  if (wrong)
    throw_errno(result ? error : 0, "ibv_get_cq_event");
  pair.send();
  take_event(pair);
  wait(pair.received.get());
  wait(pair.sent.get());
});

const Add not_solicited("not-solicited", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.with_channel = true});
  check_rc(ibv_req_notify_cq(pair.received.get(), 1), "ibv_req_notify_cq"); // 1: solicited only
  pair.receive();
  pair.send(IBV_SEND_SIGNALED | (wrong ? 0u : unsigned{IBV_SEND_SOLICITED}));
  wait(pair.sent.get());
  if (wrong)
    return; // it would wait forever
  take_event(pair);
  wait(pair.received.get());
});

// The thread that takes the event destroys the CQ, which waits until main acknowledges the event.
const Add event_not_acked("event-not-acked", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.with_channel = true});
  arm(pair.received.get());
  pair.receive();
  pair.send();
  wait(pair.received.get());
  ibv_cq *const cq = pair.received.get();
  std::atomic<pid_t> destroying{0};
  std::thread thread([&] {
    ibv_cq *from = nullptr;
    void *context = nullptr;
    check_errno(ibv_get_cq_event(pair.channel.get(), &from, &context), "ibv_get_cq_event");
    if (!wrong)
      ibv_ack_cq_events(cq, 1);
    pair.b.reset();
    destroying = static_cast<pid_t>(syscall(SYS_gettid));
    pair.received.reset();
  });
  if (wrong) {
    while (!destroying || !sleeps(destroying))
      std::this_thread::yield(); // there is no event for "it waits"
    ibv_ack_cq_events(cq, 1);
  }
  thread.join();
});

const Add status_ignored("status-ignored", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                      .qp_access = IBV_ACCESS_REMOTE_WRITE});
  pair.receive();
  pair.write(wrong ? 0 : pair.mr->rkey, reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page);
  next(pair.sent.get());
  pair.send();
  next(pair.sent.get());
});

const Add unsignaled_lost("unsignaled-lost", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive();
  pair.receive();
  pair.send(0);
  if (!wrong) {
    pair.send();
    wait(pair.sent.get());
  }
});

const Add inline_too_long("inline-too-long", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.cap = {.max_send_wr = 1,
                              .max_recv_wr = 1,
                              .max_send_sge = 1,
                              .max_recv_sge = 1,
                              .max_inline_data = 16}});
  pair.receive(page, 1024);
  ibv_sge what = pair.at(0, wrong ? 1024 : 16);
  ibv_send_wr request{.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND};
  request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  ibv_send_wr *bad = nullptr;
  if (!ibv_post_send(pair.a.get(), &request, &bad))
    next(pair.sent.get());
});

const Add too_many_sges("too-many-sges", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.cap = {.max_send_wr = 1,
                              .max_recv_wr = 1,
                              .max_send_sge = 1,
                              .max_recv_sge = 1,
                              .max_inline_data = 0}});
  std::array<ibv_sge, 64> pieces;
  pieces.fill(pair.at(0, 1));
  ibv_send_wr request{.sg_list = pieces.data(), .num_sge = wrong ? 64 : 1, .opcode = IBV_WR_SEND};
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr *bad = nullptr;
  pair.receive();
  if (!ibv_post_send(pair.a.get(), &request, &bad))
    next(pair.sent.get());
});

} // namespace
} // namespace cases

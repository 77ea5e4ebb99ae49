// SPDX-License-Identifier: MIT
// The program that test_trace.py runs under libverbs_trace.so: each subcommand makes a few calls.
// It prints what the trace has to say about them, or that something differs from a run without it.
#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

using namespace rdmacommon;

namespace {

constexpr ibv_qp_cap capacity{
    .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2};

void expect(bool holds, const char *what) {
  if (!holds) {
    std::printf("not as without a trace: %s\n", what);
    std::exit(1);
  }
}

void connect(ibv_qp *qp, const Port &port, std::uint32_t dest_qp) {
  to_init(qp, port, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  Endpoint peer = endpoint_of(qp, port, 0x123456);
  peer.qpn = dest_qp;
  to_rtr(qp, port, peer);
  to_rts(qp, 0x123456);
}

// Two connected QPs of this process with one CQ, and memory to send from and to.
struct Pair {
  explicit Pair(const DeviceOptions &options)
      : port(open_port(options)), pd(alloc_pd(port.context.get())),
        mr(reg_mr(pd.get(), memory, sizeof memory,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC)),
        cq(create_cq(port.context.get(), 64)), sender(create_rc_qp(pd.get(), cq.get(), capacity)),
        receiver(create_rc_qp(pd.get(), cq.get(), capacity)) {
    connect(sender.get(), port, receiver->qp_num);
    connect(receiver.get(), port, sender->qp_num);
    std::printf("sender %u receiver %u rkey %u addr %" PRIuPTR "\n", sender->qp_num,
                receiver->qp_num, mr->rkey, reinterpret_cast<std::uintptr_t>(memory));
  }

  ibv_sge sge(std::uint32_t length) const {
    return {.addr = reinterpret_cast<std::uintptr_t>(memory), .length = length, .lkey = mr->lkey};
  }

  void receive(std::uint64_t wr_id) {
    ibv_sge where = sge(32);
    ibv_recv_wr wr{.wr_id = wr_id, .sg_list = &where, .num_sge = 1};
    ibv_recv_wr *bad = nullptr;
    check_rc(ibv_post_recv(receiver.get(), &wr, &bad), "ibv_post_recv");
  }

  void wait(int completions) {
    ibv_wc wc{};
    while (completions > 0)
      completions -= check_count(ibv_poll_cq(cq.get(), 1, &wc), "ibv_poll_cq");
  }

  alignas(8) char memory[4096]{};
  Port port;
  unique_pd pd;
  unique_mr mr;
  unique_cq cq;
  unique_qp sender, receiver;
};

// ---- post: every kind of work request of ibv_post_send, and what must not change

void post(const DeviceOptions &options) {
  for (int fd = 3; fd < 200; ++fd) // as daemons do
    close(fd);
  Pair pair(options);
  pair.receive(1);
  pair.receive(2);
  ibv_sge words = pair.sge(8), two[] = {pair.sge(10), pair.sge(20)};
  const auto address = reinterpret_cast<std::uintptr_t>(pair.memory);
  ibv_send_wr wr[6]{};
  wr[0] = {.wr_id = UINT64_MAX, .sg_list = two, .num_sge = 2, .opcode = IBV_WR_SEND_WITH_IMM};
  wr[0].send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
  wr[0].imm_data = htonl(0xfedcba98);
  wr[1] = {.wr_id = 1, .sg_list = two, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
  wr[2] = {.wr_id = 2, .sg_list = two, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
  wr[2].imm_data = htonl(7);
  wr[3] = {.wr_id = 3, .sg_list = two, .num_sge = 2, .opcode = IBV_WR_RDMA_READ};
  wr[4] = {.wr_id = 4, .sg_list = &words, .num_sge = 1, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP};
  wr[5] = {.wr_id = 5, .sg_list = &words, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
  for (int i : {1, 2, 3}) {
    wr[i].wr.rdma.remote_addr = address;
    wr[i].wr.rdma.rkey = pair.mr->rkey;
  }
  for (int i : {4, 5}) {
    wr[i].wr.atomic.remote_addr = address;
    wr[i].wr.atomic.rkey = pair.mr->rkey;
    wr[i].wr.atomic.compare_add = UINT64_MAX;
    wr[i].wr.atomic.swap = 12;
  }
  wr[5].send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
  for (int i = 0; i < 5; ++i)
    wr[i].next = &wr[i + 1];
  ibv_send_wr *bad = nullptr;
  errno = 77;
  check_rc(ibv_post_send(pair.sender.get(), wr, &bad), "ibv_post_send");
  expect(errno == 77, "errno after a call that worked");
  pair.wait(4); // two signaled ones, two receives

  wr[2].num_sge = 99; // more than the QP holds
  wr[1].next = &wr[2];
  wr[2].next = nullptr;
  const int error = ibv_post_send(pair.sender.get(), &wr[1], &bad);
  expect(error == EINVAL && bad == &wr[2], "the refused request");

  const int access = IBV_ACCESS_REMOTE_WRITE; // needs LOCAL_WRITE as well
  // The PD is in use; the failure, and its name in the next call, have to be right.
  errno = 0;
  expect(ibv_dealloc_pd(pair.pd.get()) == EBUSY, "ibv_dealloc_pd of a PD in use");
  expect(ibv_reg_mr(pair.pd.get(), nullptr, 4096, access) == nullptr && errno == EINVAL,
         "errno after a call that failed");
}

// ---- extended: ibv_wr_*, and CQs that are read in place

void wait_extended(ibv_cq_ex *cq, int completions) {
  // rxe's next_poll ends the poll itself when it finds nothing, and end_poll would skip a
  // completion.
  const bool ends_itself = std::strncmp(cq->context->device->name, "rxe", 3) == 0;
  ibv_poll_cq_attr attr{};
  while (completions > 0) {
    if (ibv_start_poll(cq, &attr) == ENOENT)
      continue;
    bool more = true;
    while (--completions > 0 && more)
      more = ibv_next_poll(cq) == 0;
    if (more || !ends_itself)
      ibv_end_poll(cq);
    completions += !more; // counted before it was there
  }
}

void extended(const DeviceOptions &options) {
  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  alignas(8) char memory[4096]{};
  const unique_mr mr =
      reg_mr(pd.get(), memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  // One CQ tells all, the other as little as can be.
  ibv_cq_init_attr_ex cq_attr{
      .cqe = 64, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM};
  ibv_cq_ex *full = check_ptr(ibv_create_cq_ex(port.context.get(), &cq_attr), "ibv_create_cq_ex");
  cq_attr.wc_flags = 0;
  ibv_cq_ex *poor = check_ptr(ibv_create_cq_ex(port.context.get(), &cq_attr), "ibv_create_cq_ex");
  ibv_qp_init_attr_ex attr{
      .send_cq = ibv_cq_ex_to_cq(poor),
      .recv_cq = ibv_cq_ex_to_cq(full),
      .cap = capacity,
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = pd.get(),
      .send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE,
  };
  attr.cap.max_inline_data = 64;
  unique_qp qp(check_ptr(ibv_create_qp_ex(port.context.get(), &attr), "ibv_create_qp_ex"));
  connect(qp.get(), port, qp->qp_num); // the queue pair is its own peer
  std::printf("qp %u rkey %u addr %" PRIuPTR "\n", qp->qp_num, mr->rkey,
              reinterpret_cast<std::uintptr_t>(memory));

  ibv_sge where{.addr = reinterpret_cast<std::uintptr_t>(memory), .length = 64, .lkey = mr->lkey};
  ibv_recv_wr receive{.wr_id = 1, .sg_list = &where, .num_sge = 1}, *bad = nullptr;
  check_rc(ibv_post_recv(qp.get(), &receive, &bad), "ibv_post_recv");

  ibv_qp_ex *its = ibv_qp_to_qp_ex(qp.get());
  ibv_wr_start(its);
  its->wr_id = 99;
  its->wr_flags = 0;
  ibv_wr_send_imm(its, htonl(1));
  ibv_wr_set_sge(its, mr->lkey, where.addr, 64);
  ibv_wr_abort(its);

  ibv_wr_start(its);
  its->wr_id = 10;
  its->wr_flags = 0;
  ibv_wr_rdma_write(its, mr->rkey, where.addr);
  const ibv_sge list[] = {{where.addr, 100, mr->lkey}, {where.addr, 200, mr->lkey}};
  ibv_wr_set_sge_list(its, 2, list);
  its->wr_id = 11;
  its->wr_flags = IBV_SEND_INLINE; // rxe wants to hear it twice
  ibv_wr_send_imm(its, htonl(0x55aa));
  ibv_wr_set_inline_data(its, memory, 12);
  check_rc(ibv_wr_complete(its), "ibv_wr_complete");
  wait_extended(full, 1);
  wait_extended(poor, 2);

  ibv_wr_start(its);
  its->wr_id = 12;
  ibv_wr_send_imm(its, 0);
  ibv_wr_set_inline_data(its, memory, sizeof memory); // more than the QP takes
  expect(ibv_wr_complete(its) != 0, "ibv_wr_complete of what cannot be sent");

  // A receive that is flushed.
  ibv_qp_attr error{.qp_state = IBV_QPS_ERR};
  check_rc(ibv_post_recv(qp.get(), &receive, &bad), "ibv_post_recv");
  check_rc(ibv_modify_qp(qp.get(), &error, IBV_QP_STATE), "ibv_modify_qp");
  wait_extended(full, 1);

  qp.reset();
  check_rc(ibv_destroy_cq(ibv_cq_ex_to_cq(full)), "ibv_destroy_cq");
  check_rc(ibv_destroy_cq(ibv_cq_ex_to_cq(poor)), "ibv_destroy_cq");
}

// ---- objects: the rarer ones

void objects(const DeviceOptions &options) {
  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  ibv_srq_init_attr srq_attr{.attr = {.max_wr = 16, .max_sge = 1}};
  ibv_srq *srq = check_ptr(ibv_create_srq(pd.get(), &srq_attr), "ibv_create_srq");
  ibv_recv_wr receive{.wr_id = 5}, *bad = nullptr;
  check_rc(ibv_post_srq_recv(srq, &receive, &bad), "ibv_post_srq_recv");
  ibv_srq_attr limit{.srq_limit = 1};
  check_rc(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "ibv_modify_srq");
  check_rc(ibv_destroy_srq(srq), "ibv_destroy_srq");

  ibv_mw *mw = check_ptr(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1), "ibv_alloc_mw");
  std::printf("window %u\n", mw->rkey);
  check_rc(ibv_dealloc_mw(mw), "ibv_dealloc_mw");

  ibv_comp_channel *channel =
      check_ptr(ibv_create_comp_channel(port.context.get()), "ibv_create_comp_channel");
  ibv_cq *cq =
      check_ptr(ibv_create_cq(port.context.get(), 4, nullptr, channel, 0), "ibv_create_cq");
  check_rc(ibv_req_notify_cq(cq, 1), "ibv_req_notify_cq");
  check_rc(ibv_resize_cq(cq, 100), "ibv_resize_cq");
  check_rc(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check_rc(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");

  ibv_ah_attr route =
      route_to(port, {.lid = port.attr.lid, .qpn = 1, .psn = 0, .gid = port.gid.gid});
  ibv_ah *ah = check_ptr(ibv_create_ah(pd.get(), &route), "ibv_create_ah");
  check_rc(ibv_destroy_ah(ah), "ibv_destroy_ah");
}

// ---- threads: several post and poll at once, while others open and close

void threads(const DeviceOptions &options) {
  constexpr int posters = 4, posts = 500;
  Pair pair(options);
  std::atomic<bool> done{false};
  std::vector<std::thread> all;
  std::thread opener([&] {
    std::vector<unique_cq> cqs; // so that what is known grows
    while (!done) {
      open_port(options);
      for (int i = 0; i < 20 && cqs.size() < 500; ++i)
        cqs.emplace_back(
            check_ptr(ibv_create_cq(pair.port.context.get(), 1, nullptr, nullptr, 0), "cq"));
    }
  });
  for (int number = 0; number < posters; ++number)
    all.emplace_back([&, number] {
      const unique_cq cq = create_cq(pair.port.context.get(), 16);
      ibv_qp_cap cap = capacity;
      cap.max_recv_wr = posts;
      const unique_qp qp = create_rc_qp(pair.pd.get(), cq.get(), cap);
      to_init(qp.get(), pair.port);
      for (int i = 0; i < posts; ++i) {
        ibv_recv_wr wr{.wr_id = static_cast<std::uint64_t>(number) << 32 | i}, *bad = nullptr;
        check_rc(ibv_post_recv(qp.get(), &wr, &bad), "ibv_post_recv");
        ibv_wc wc{};
        expect(ibv_poll_cq(cq.get(), 1, &wc) == 0, "an empty poll");
      }
    });
  for (std::thread &thread : all)
    thread.join();
  done = true;
  opener.join();
}

// ---- fork: a child that uses the device by itself, while the parent's other thread posts

void forks(const DeviceOptions &options) {
  Pair pair(options);
  std::atomic<bool> done{false};
  std::thread poster([&] {
    while (!done) {
      const unique_pd pd = alloc_pd(pair.port.context.get());
    }
  });
  for (int i = 0; i < 20; ++i) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      open_port(options);
      _exit(0);
    }
    int status = 0;
    expect(waitpid(child, &status, 0) == child && status == 0, "a child");
    std::printf("child %d\n", child);
  }
  done = true;
  poster.join();
}

// ---- crash: no destructor runs

void crash(const DeviceOptions &options) {
  Pair pair(options);
  for (std::uint64_t i = 0; i < 20; ++i)
    pair.receive(i);
  std::fflush(stdout);
  std::raise(SIGKILL);
}

// ---- untouched: whose functions the context's pointers lead to, and whether there is a file

void untouched(const DeviceOptions &options) {
  const Port port = open_port(options);
  const auto say = [](const char *what, const void *function) {
    Dl_info info{};
    dladdr(function, &info);
    std::printf("%s %s\n", what, info.dli_fname ? info.dli_fname : "?");
  };
  say("post_send", reinterpret_cast<void *>(port.context->ops.post_send));
  say("poll_cq", reinterpret_cast<void *>(port.context->ops.poll_cq));
  say("create_qp_ex",
      reinterpret_cast<void *>(verbs_get_ctx_op(port.context.get(), create_qp_ex)->create_qp_ex));
  std::printf("trace %s\n", fcntl(900, F_GETFD) < 0 ? "none" : "libverbs_trace.so's file");
}

// ---- cost: ns for a call; not a test, since it says something only on a machine that does nothing
// else

void cost(const DeviceOptions &options) {
  constexpr int times = 4000;
  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq cq = create_cq(port.context.get(), 16);
  ibv_qp_cap cap = capacity;
  cap.max_recv_wr = times;
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), cap);
  to_init(qp.get(), port);
  const auto time = [](const char *what, auto call) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i)
      call();
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began;
    std::printf("%s %lld ns\n", what, static_cast<long long>(took.count() / times));
  };
  ibv_recv_wr wr{}, *bad = nullptr;
  ibv_wc wc{};
  time("post_recv", [&] { ibv_post_recv(qp.get(), &wr, &bad); });
  time("empty poll", [&] { ibv_poll_cq(cq.get(), 1, &wc); });
}

void traced(int argc, char **argv) {
  CommandLine line{"Makes verbs calls for test_trace.py."};
  DeviceOptions options{line};
  const std::map<std::string, void (*)(const DeviceOptions &)> bodies{
      {"post", post},  {"extended", extended}, {"objects", objects},     {"threads", threads},
      {"fork", forks}, {"crash", crash},       {"untouched", untouched}, {"cost", cost}};
  std::string what;
  line.add("what", what, "which calls");
  line.parse(argc, argv);
  bodies.at(what)(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, traced);
}

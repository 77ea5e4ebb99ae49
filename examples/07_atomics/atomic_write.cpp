// SPDX-License-Identifier: MIT
// atomic_write: eight bytes that the other side sees whole, and only after everything that they
// announce.
//
// Lesson:  lessons/07_atomics.md
// Needs:   a device that can do ATOMIC_WRITE; SoftRoCE can from Linux 6.2 on. Exit status 77
//          without.
// Run:     LAB_KERNEL=bookworm-backports ./lab run 07_atomics --program atomic_write
// By hand: atomic_write                 the server, which watches its memory
//          atomic_write --host ADDRESS  the client, which appends to a log in it

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>

using namespace rdmacommon;

namespace {

// Bits of enum ib_uverbs_device_cap_flags in the kernel's rdma/ib_user_verbs.h. Older headers lack
// these bits.
[[maybe_unused]] constexpr uint64_t device_flush_global = 1ULL << 38,
                                    device_atomic_write = 1ULL << 40;

// The client appends entries and then says how many there are.
struct Log {
  std::array<std::array<char, 64>, 4> entries;
  alignas(8) uint64_t count;
};

#ifdef HAVE_WR_ATOMIC_WRITE

// [capabilities]
struct Capabilities {
  bool flush;
  uint64_t send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE;
  unsigned access = IBV_ACCESS_REMOTE_WRITE;
};

Capabilities capabilities(ibv_context *context) {
  ibv_device_attr_ex device{};
  check_rc(ibv_query_device_ex(context, nullptr, &device), "ibv_query_device_ex");
  if ((device.device_cap_flags_ex & device_atomic_write) == 0)
    throw Unsupported("this device has no ATOMIC_WRITE (SoftRoCE: from Linux 6.2 on)");
#ifdef HAVE_WR_FLUSH
  if (device.device_cap_flags_ex & device_flush_global)
    return {.flush = true,
            .send_ops =
                IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH,
            .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL};
#endif
  return {.flush = false};
}
// [capabilities]

// [create-qp]
// A queue pair has only those builders (ibv_wr_*) that are asked for when it is created.
unique_qp create_qp(ibv_context *context, ibv_pd *pd, ibv_cq *cq, uint64_t send_ops) {
  ibv_qp_init_attr_ex attr{
      .send_cq = cq,
      .recv_cq = cq,
      .cap = {.max_send_wr = 3, .max_send_sge = 1},
      .qp_type = IBV_QPT_RC,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = pd,
      .send_ops_flags = send_ops,
  };
  return unique_qp(check_ptr(ibv_create_qp_ex(context, &attr), "ibv_create_qp_ex"));
}
// [create-qp]

// [append]
// The entry, then (where the device can) a FLUSH, which waits until it is where the server's CPU
// sees it, then the new count. The three are posted together and executed in this order.
void append(ibv_qp_ex *qp, const ibv_mr *mr, Log &log, uint64_t number, const RemoteMemory &theirs,
            [[maybe_unused]] bool flush) {
  const uint64_t entry = theirs.address + offsetof(Log, entries) + number * sizeof log.entries[0];
  char *const text = log.entries[number].data();
  std::snprintf(text, sizeof log.entries[0], "entry %" PRIu64, number);
  ibv_wr_start(qp);
  qp->wr_flags = 0;
  ibv_wr_rdma_write(qp, theirs.rkey, entry);
  ibv_wr_set_sge(qp, mr->lkey, reinterpret_cast<uintptr_t>(text), sizeof log.entries[0]);
#ifdef HAVE_WR_FLUSH
  if (flush)
    ibv_wr_flush(qp, theirs.rkey, entry, sizeof log.entries[0], IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
#endif
  qp->wr_flags = IBV_SEND_SIGNALED;
  const uint64_t count = number + 1;
  ibv_wr_atomic_write(qp, theirs.rkey, theirs.address + offsetof(Log, count), &count);
  check_rc(ibv_wr_complete(qp), "ibv_wr_complete");
}
// [append]

// [watch]
// No completion tells the server: it looks at the count, and the entries before it are there.
void watch(Log &log, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const std::atomic_ref<uint64_t> count(log.count);
  for (uint64_t seen = 0; seen < log.entries.size();) {
    const uint64_t now = count.load(std::memory_order_acquire);
    if (now > log.entries.size() || now < seen)
      throw Error("the count", std::to_string(now) + " cannot be");
    for (; seen < now; ++seen)
      std::printf("\"%.64s\"\n", log.entries[seen].data());
    if (std::chrono::steady_clock::now() > deadline)
      throw Error("the log", "not all entries came in time");
  }
}
// [watch]

void atomic_write(int argc, char **argv) {
  CommandLine line{"Appends to a log in the server's memory, by ATOMIC_WRITE."};
  PairOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  const Capabilities can = capabilities(port.context.get());
  std::printf("this device has ATOMIC_WRITE%s\n", can.flush ? " and FLUSH" : "");
  Log log{};
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_mr mr = reg_mr(pd.get(), &log, sizeof log, IBV_ACCESS_LOCAL_WRITE | can.access);
  const unique_cq cq = create_cq(port.context.get(), 3);
  const unique_qp qp = create_qp(port.context.get(), pd.get(), cq.get(), can.send_ops);
  to_init(qp.get(), port, can.access);
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));
  if (options.is_server()) {
    watch(log, options.timeout);
  } else {
    if (theirs.length < sizeof(Log) || theirs.address % alignof(Log) != 0)
      throw Error("the peer's memory", "the log is not in it");
    for (uint64_t number = 0; number < log.entries.size(); ++number) {
      append(ibv_qp_to_qp_ex(qp.get()), mr.get(), log, number, theirs, can.flush);
      wait_for_completion(cq.get(), "the ATOMIC_WRITE", options.timeout);
    }
    std::printf("appended %zu entries\n", log.entries.size());
  }
  exchange.finish();
}

#else

void atomic_write(int, char **) {
  throw Unsupported("built with an rdma-core that has no ibv_wr_atomic_write");
}

#endif

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, atomic_write);
}

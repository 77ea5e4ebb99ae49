// SPDX-License-Identifier: MIT
// Cases about memory.

#include "cases.hpp"

#include <cstdio>
#include <cstring>
#include <sys/mman.h>

namespace cases {
namespace {

const Add buffer_changed("buffer-changed", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive();
  pair.send();
  if (wrong)
    std::strcpy(pair.buffer.get(), "second thought");
  wait(pair.sent.get());
  if (!wrong)
    std::strcpy(pair.buffer.get(), "second thought");
});

// The region ends first, or the memory does.
struct Heap {
  explicit Heap(const Pair &pair)
      : memory(static_cast<char *>(std::malloc(page))),
        mr(reg_mr(pair.pd.get(), memory, page, IBV_ACCESS_LOCAL_WRITE)) {}
  void end(bool memory_first) {
    if (memory_first)
      std::free(memory);
    mr.reset();
    if (!memory_first)
      std::free(memory);
  }
  char *memory;
  unique_mr mr;
};

void receive_into(const Pair &pair, const Heap &heap) {
  ibv_sge where = piece(heap.mr.get(), heap.memory, 64);
  post_recv(pair.b.get(), {.wr_id = 1, .sg_list = &where, .num_sge = 1});
}

const Add freed_in_flight("freed-in-flight", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  Heap heap(pair);
  receive_into(pair, heap);
  if (!wrong) {
    pair.send();
    wait(pair.received.get());
  }
  std::free(wrong ? heap.memory : nullptr);
  pair.b.reset();
  heap.mr.reset();
  std::free(wrong ? nullptr : heap.memory);
});

const Add freed_registered("freed-registered", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  Heap(pair).end(wrong);
  void *mapped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unique_mr mr = reg_mr(pair.pd.get(), mapped, page, IBV_ACCESS_LOCAL_WRITE);
  if (!wrong)
    mr.reset();
  munmap(mapped, page);
});

const Add deregistered("deregistered-in-flight", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  Heap heap(pair);
  receive_into(pair, heap);
  if (!wrong)
    pair.b.reset(); // its receives end with it
  heap.end(false);
});

const Add unknown_lkey("unknown-lkey", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive();
  ibv_sge what = pair.at(0, 64);
  what.lkey ^= wrong ? 0x5500 : 0;
  post_send(
      pair.a.get(),
      {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  next(pair.sent.get());
});

const Add outside_region("outside-region", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive();
  ibv_sge what = pair.at(wrong ? 2 * page - 32 : 2 * page - 64, 64);
  post_send(
      pair.a.get(),
      {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  next(pair.sent.get());
});

const Add other_pd("other-pd", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive();
  const unique_pd other = alloc_pd(pair.port.context.get());
  const unique_mr mr = reg_mr(wrong ? other.get() : pair.pd.get(), pair.buffer.get(), page, 0);
  ibv_sge what = piece(mr.get(), pair.buffer.get(), 64);
  post_send(
      pair.a.get(),
      {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  next(pair.sent.get());
});

const Add no_local_write("no-local-write", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.access = wrong ? 0u : unsigned{IBV_ACCESS_LOCAL_WRITE}});
  pair.receive();
});

// The device says that it is an iWARP one.
const Add no_remote_write("no-remote-write", [](const DeviceOptions &options, bool wrong) {
  constexpr unsigned read = IBV_ACCESS_REMOTE_READ, write = IBV_ACCESS_REMOTE_WRITE;
  Pair pair(options, {.access = IBV_ACCESS_LOCAL_WRITE | read | (wrong ? 0 : write),
                      .qp_access = read | write});
  pair.port.context->device->transport_type = IBV_TRANSPORT_IWARP;
  pair.write(pair.mr->rkey, reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page,
             IBV_WR_RDMA_READ);
  wait(pair.sent.get());
});

const Add short_receive("short-receive", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive(page, wrong ? 32 : 64);
  pair.send();
  next(pair.received.get());
});

// Under RDMALINT_PROTECT: a receive of a whole page.
const Add read_early("read-early", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive(page, page);
  if (wrong)
    std::printf("%c\n", pair.buffer.get()[page]);
  pair.send();
  wait(pair.received.get());
  std::printf("%c\n", pair.buffer.get()[page]);
});

} // namespace
} // namespace cases

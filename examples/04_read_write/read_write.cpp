// SPDX-License-Identifier: MIT
// 04_read_write: one program writes into the other's memory, and reads it back, while the other
// sleeps.
//
// Lesson:  lessons/04_read_write.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 04_read_write
// By hand: read_write                 the server, whose memory it is
//          read_write --host ADDRESS  the client, which does the work

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

using namespace rdmacommon;

namespace {

constexpr size_t memory_size = 4096;
using Memory = std::array<char, memory_size>;

// [stopwatch]
// Measures the time that something takes, and the CPU time that this process spends on it.
class Stopwatch {
public:
  double elapsed_ms() const { return now_ms(CLOCK_MONOTONIC) - began_; }
  double cpu_ms() const { return now_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_began_; }

private:
  static double now_ms(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  }
  double began_ = now_ms(CLOCK_MONOTONIC), cpu_began_ = now_ms(CLOCK_PROCESS_CPUTIME_ID);
};
// [stopwatch]

// [connect]
// As in lesson 02, with three more fields on the line: which memory the other side may use.
RemoteMemory connect_and_share(ibv_qp *qp, const Port &port, Exchange &exchange, bool is_server,
                               uint8_t max_rd_atomic, const RemoteMemory &mine) {
  const Endpoint self = endpoint_of(qp, port, random_psn());
  RemoteMemory theirs{};
  if (!is_server)
    exchange.send(self, mine);
  const Endpoint peer = exchange.receive(theirs);
  to_rtr(qp, port, peer, max_rd_atomic); // READs that we answer at a time,
  to_rts(qp, self.psn, max_rd_atomic);   // and READs that we ask for
  if (is_server) {
    exchange.send(self, mine);
    exchange.receive_done();
  } else {
    exchange.send_done();
  }
  std::printf("mine    %s\ntheirs  %s\n", to_line(mine).c_str(), to_line(theirs).c_str());
  return theirs;
}
// [connect]

// [write]
// `here` -> the peer's memory, from its beginning.
void rdma_write(ibv_qp *qp, ibv_sge here, const RemoteMemory &there) {
  post_send(qp, {.sg_list = &here,
                 .num_sge = 1,
                 .opcode = IBV_WR_RDMA_WRITE,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr = {.rdma = {.remote_addr = there.address, .rkey = there.rkey}}});
}
// [write]

// [read]
// The peer's memory, from its beginning -> `here`, which our own NIC writes: it needs LOCAL_WRITE.
void rdma_read(ibv_qp *qp, ibv_sge here, const RemoteMemory &there) {
  post_send(qp, {.sg_list = &here,
                 .num_sge = 1,
                 .opcode = IBV_WR_RDMA_READ,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr = {.rdma = {.remote_addr = there.address, .rkey = there.rkey}}});
}
// [read]

// [server]
// Nothing in here has to do with RDMA: the server waits on a socket until the client has finished.
void server(Exchange &exchange, const Memory &memory) {
  const Stopwatch watch;
  exchange.receive_done(std::chrono::hours(1));
  std::printf("the client took %.3f ms, of which I was awake for %.3f ms\n", watch.elapsed_ms(),
              watch.cpu_ms());
  std::printf("my memory after:  \"%s\"\n", memory.data());
}
// [server]

struct Settings {
  std::string message = "written by the client, while the server slept";
  uint32_t reads = 2000;
};

// [client]
void client(ibv_qp *qp, ibv_cq *cq, ibv_mr *mr, Memory &memory, const RemoteMemory &theirs,
            const Settings &settings, std::chrono::seconds timeout) {
  // Two halves: what goes out, and what comes back.
  char *const outgoing = memory.data(), *const incoming = outgoing + memory_size / 2;
  const size_t length = settings.message.size() + 1;
  if (length > theirs.length) // their NIC would refuse, and break the connection
    throw Error("the peer's memory", "it shares only " + std::to_string(theirs.length) + " bytes");
  std::memcpy(outgoing, settings.message.c_str(), length);

  rdma_write(qp, piece(mr, outgoing, length), theirs);
  wait_for_completion(cq, "the WRITE", timeout);
  std::printf("WRITE of %zu bytes completed\n", length);

  rdma_read(qp, piece(mr, incoming, length), theirs);
  wait_for_completion(cq, "the READ", timeout);
  if (std::memcmp(outgoing, incoming, length) != 0)
    throw Error("the comparison", "what was read is not what was written");
  std::printf("READ of %zu bytes completed, and they are the same\n", length);

  const Stopwatch watch;
  for (uint32_t i = 0; i < settings.reads; ++i) {
    rdma_read(qp, piece(mr, incoming, length), theirs);
    wait_for_completion(cq, "a READ", timeout);
  }
  std::printf("%u READs more: %.3f ms, of which I was awake for %.3f ms\n", settings.reads,
              watch.elapsed_ms(), watch.cpu_ms());
}
// [client]

void read_write(int argc, char **argv) {
  CommandLine line{"Writes into the server's memory and reads it back; the server takes no part."};
  PairOptions options{line};
  Settings settings;
  line.add("--message", settings.message, "what to write, up to 2047 bytes", memory_size / 2 - 1);
  line.add("--reads", settings.reads, "how many READs to time [2000]", 0, 1'000'000);
  line.parse(argc, argv);

  // [register]
  const Port port = open_port(options);
  Memory memory{"nobody has written here"};
  const unique_pd pd = alloc_pd(port.context.get());
  // The client's memory is for its own NIC only; the server's is open to the peer.
  const unsigned remote =
      options.is_server() ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ : 0;
  const unsigned access = IBV_ACCESS_LOCAL_WRITE | remote;
  const unique_mr mr = reg_mr(pd.get(), memory.data(), memory.size(), access);
  // [register]
  const unique_cq cq = create_cq(port.context.get(), 1);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_send_sge = 1}); // and no receives
  // [init]
  to_init(qp.get(), port, remote); // the region and the queue pair must both allow it
  // [init]
  if (options.is_server()) // once the client knows the rkey, it is too late to look
    std::printf("my memory before: \"%s\"\n", memory.data());
  Exchange exchange(options);
  const RemoteMemory mine = share(mr.get());
  const RemoteMemory theirs =
      connect_and_share(qp.get(), port, exchange, options.is_server(), options.max_rd_atomic, mine);
  if (options.is_server()) {
    server(exchange, memory);
  } else {
    client(qp.get(), cq.get(), mr.get(), memory, theirs, settings, options.timeout);
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, read_write);
}

// SPDX-License-Identifier: MIT
// 05_write_with_imm: a file goes over in fragments, straight into the receiver's memory, and the
// immediate data of each message tell the receiver which fragments have come.
//
// Lesson:  lessons/05_write_with_imm.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 05_write_with_imm
// By hand: write_with_imm --save PATH                 the server, which receives
//          write_with_imm --host ADDRESS --file PATH  the client, which sends

#include "fragments.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

using namespace rdmacommon;

namespace {

[[noreturn]] void refuse(const std::string &what, Where where = Where::here()) {
  throw Error("the peer's message", what, where);
}

// [send-immediate]
// Immediate data alone: a WRITE of nothing, which needs neither address nor rkey.
void send_immediate(const Side &to, Run run) {
  post_send(to.qp, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                    .send_flags = IBV_SEND_SIGNALED,
                    .imm_data = to_immediate(run)});
}
// [send-immediate]

// ---- the receiver

// [checked]
// Compares what a message says about itself with what has come, in it and before it.
Run checked(const ibv_wc &wc, uint32_t next, uint64_t bytes) {
  if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
    refuse("it is not an RDMA WRITE with immediate data");
  const Run run = from_immediate(wc.imm_data);
  if (run.first != next)
    refuse("it begins with fragment " + std::to_string(run.first) + ", not " +
           std::to_string(next));
  if (run.first % slot_count + run.count > slot_count ||
      run.first + run.count > longest / fragment_size)
    refuse(std::to_string(run.count) + " fragments do not fit there");
  if ((wc.byte_len + fragment_size - 1) / fragment_size != run.count)
    refuse(std::to_string(wc.byte_len) + " bytes are not " + std::to_string(run.count) +
           " fragments");
  if (run.count > 0 && bytes != run.first * fragment_size)
    refuse("it comes after a fragment that was not full, so after the last one");
  return run;
}
// [checked]

// [receive]
void receive(const Side &from, const std::string &path) {
  std::ofstream out(path, std::ios::binary);
  Checksum checksum;
  uint32_t next = 0, messages = 0;
  uint64_t bytes = 0;
  for (;;) {
    const ibv_wc wc = wait_for_completion(from.recv_cq, "the next fragments", from.timeout);
    const Run run = checked(wc, next, bytes);
    if (next == 0 || run.count == 0)
      std::printf("immediate data %08x: %u fragments from %u on, %u bytes\n", ntohl(wc.imm_data),
                  run.count, run.first, wc.byte_len);
    if (run.count == 0)
      break;
    const char *data = from.memory.slots[run.first % slot_count].data();
    out.write(data, wc.byte_len);
    checksum.add(data, wc.byte_len);
    next += run.count;
    bytes += wc.byte_len;

    // In this order: with the credit, the client may use the slots and a receive at once.
    post_recv(from.qp, {});
    if (++messages > 1)
      wait_for_completion(from.send_cq, "the credit before", from.timeout);
    send_immediate(from, run);
  }
  if (!out.flush())
    throw Error(path, "cannot be written");
  // The client wrote the summary before the last message, so it is here. Copy it, and check the
  // copy: the client can still change the original.
  const Summary summary = from.memory.summary;
  if (be64toh(summary.version) != 1)
    refuse("its summary is of another version");
  if (be64toh(summary.bytes) != bytes || be64toh(summary.checksum) != checksum.value())
    refuse("what has come is not what its summary says");
  std::printf("received %" PRIu64 " bytes in %u fragments, %u messages, checksum right\n", bytes,
              next, messages);
  if (messages > 0)
    wait_for_completion(from.send_cq, "the last credit", from.timeout);
  send_immediate(from, {.first = next, .count = 0});
  wait_for_completion(from.send_cq, "the answer", from.timeout);
}
// [receive]

// ---- the sender

// [take-credit]
// Our own NIC has finished with a run, and the server has taken it out: its slots are free on both
// sides.
Run take_credit(const Side &to, uint32_t oldest, uint32_t next) {
  wait_for_completion(to.send_cq, "the WRITE", to.timeout);
  const ibv_wc wc = wait_for_completion(to.recv_cq, "the server's answer", to.timeout);
  const Run run = from_immediate(wc.imm_data);
  if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || run.first != oldest || run.count > next - oldest ||
      (run.count == 0 && next > oldest))
    refuse("it is no answer to what was sent");
  return run;
}
// [take-credit]

// [send-run]
void send_run(const Side &to, Run run, size_t length) {
  const uint32_t slot = run.first % slot_count;
  ibv_sge local = piece(to.mr, to.memory.slots[slot].data(), length);
  post_recv(to.qp, {}); // for the answer
  post_send(to.qp, {.sg_list = &local,
                    .num_sge = 1,
                    .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                    .send_flags = IBV_SEND_SIGNALED,
                    .imm_data = to_immediate(run),
                    .wr = {.rdma = {.remote_addr = to.theirs.address + slot * fragment_size,
                                    .rkey = to.theirs.rkey}}});
}
// [send-run]

// [summary]
void send_summary(const Side &to, uint32_t fragments, uint64_t bytes, uint64_t checksum) {
  to.memory.summary = {
      .version = htobe64(1), .bytes = htobe64(bytes), .checksum = htobe64(checksum)};
  ibv_sge local = piece(to.mr, &to.memory.summary, sizeof(Summary));
  post_send(to.qp,
            {.sg_list = &local,
             .num_sge = 1,
             .opcode = IBV_WR_RDMA_WRITE, // the receiver is not told
             .wr = {.rdma = {.remote_addr = to.theirs.address + offsetof(FragmentMemory, summary),
                             .rkey = to.theirs.rkey}}});
  post_recv(to.qp, {});
  send_immediate(to, {.first = fragments, .count = 0}); // the end
}
// [summary]

struct Settings {
  std::string file, save = "/dev/null";
  uint64_t size = 2'000'000;
  uint32_t run = 4;
};

// [send]
void send(const Side &to, const Settings &settings, std::istream &in) {
  Checksum checksum;
  uint32_t oldest = 0, next = 0, messages = 0; // fragments: not answered yet, not sent yet
  uint64_t bytes = 0, left = settings.file.empty() ? settings.size : longest;
  for (;;) {
    const uint32_t count =
        std::min(settings.run, slot_count - next % slot_count); // not over the edge
    while (next + count - oldest > slot_count)
      oldest += take_credit(to, oldest, next).count;
    char *const data = to.memory.slots[next % slot_count].data();
    in.read(data, static_cast<std::streamsize>(std::min<uint64_t>(count * fragment_size, left)));
    const auto length = static_cast<size_t>(in.gcount());
    if (in.bad())
      throw Error(settings.file, "cannot be read");
    if (length == 0)
      break;
    checksum.add(data, length);
    const auto filled = static_cast<uint32_t>((length + fragment_size - 1) / fragment_size);
    send_run(to, {.first = next, .count = filled}, length);
    next += filled;
    bytes += length;
    left -= length;
    ++messages;
  }
  if (!settings.file.empty() && left == 0 && in.peek() != std::istream::traits_type::eof())
    throw Error(settings.file, "is longer than 1 GiB");
  send_summary(to, next, bytes, checksum.value());
  while (oldest < next)
    oldest += take_credit(to, oldest, next).count;
  take_credit(to, next, next);
  std::printf("sent %" PRIu64 " bytes in %u fragments, %u messages, and the server has them all\n",
              bytes, next, messages);
}
// [send]

void write_with_imm(int argc, char **argv) {
  CommandLine line{"Sends a file in fragments; immediate data say which have come."};
  PairOptions options{line};
  Settings settings;
  line.add("--file", settings.file, "client: what to send, up to 1 GiB; without it, random bytes");
  line.add("--size", settings.size, "client: how many random bytes [2000000]", 0, longest);
  line.add("--run", settings.run, "client: how many fragments go in one message [4]", 1,
           slot_count);
  line.add("--save", settings.save, "server: where to put what comes [/dev/null]");
  line.parse(argc, argv);
  std::ifstream in;
  if (!options.is_server()) {
    in.open(settings.file.empty() ? "/dev/urandom" : settings.file, std::ios::binary);
    if (!in)
      throw Error(settings.file, "cannot be opened");
  }

  const Port port = open_port(options);
  static FragmentMemory memory{};
  const unique_pd pd = alloc_pd(port.context.get());
  const unsigned remote = options.is_server() ? IBV_ACCESS_REMOTE_WRITE : 0;
  const unique_mr mr = reg_mr(pd.get(), &memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | remote);
  // [queues]
  // At most this many messages wait for an answer at a time: one for each slot, and the last one,
  // which ends the file.
  const uint32_t receives = slot_count + 1;
  const uint32_t sends = receives + 1; // and the summary
  // Room for every posted request: one that fails or is flushed completes even if it is not
  // signaled.
  const unique_cq send_cq = create_cq(port.context.get(), static_cast<int>(sends));
  const unique_cq recv_cq = create_cq(port.context.get(), static_cast<int>(receives));
  const unique_qp qp =
      create_rc_qp(pd.get(), send_cq.get(), recv_cq.get(),
                   {.max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE);
  if (options.is_server())
    for (uint32_t i = 0; i < receives; ++i)
      post_recv(qp.get(), {}); // no SGE: the data go elsewhere
  // [queues]
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));
  const Side connection{qp.get(), send_cq.get(), recv_cq.get(),  mr.get(),
                        memory,   theirs,        options.timeout};
  if (options.is_server()) {
    receive(connection, settings.save);
  } else {
    if (theirs.length != sizeof(FragmentMemory))
      throw Error("the peer's memory", "its size is not that of ours");
    send(connection, settings, in);
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, write_with_imm);
}

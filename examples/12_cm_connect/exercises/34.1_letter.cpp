// SPDX-License-Identifier: MIT
// Exercise 34.1 (★): a letter for every kind of NIC.
// Wanted:   the client sends no immediate data, which not every iWARP NIC has. The number of the
//           mailbox comes in a SEND after the letter, and the server prints "by a SEND".
// Hints: ./lab hint 34.1
// Check: ./lab check 34.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>

#include <arpa/inet.h>
#include <endian.h>

#include <array>
#include <cstdio>
#include <cstring>

using namespace rdmacommon;

namespace {

// One side's memory, and its connection.
struct Side {
  explicit Side(rdma_cm_id *id)
      : pd(alloc_pd(id->verbs)), mr(reg_mr(pd.get(), this, sizeof boxes + sizeof number,
                                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
        cq(create_cq(id->verbs, 3)),
        qp(create_cm_qp(
            id, pd.get(), cq.get(),
            {.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1})) {}
  std::array<std::array<char, 64>, 16> boxes{};
  uint32_t number = 0; // a mailbox's, in network byte order
  unique_pd pd;
  unique_mr mr;
  unique_cq cq;
  unique_cm_qp qp;
};

// The place of the server's mailboxes, in its private data: big-endian.
struct Address {
  uint64_t address;
  uint32_t rkey;
};

void serve(rdma_event_channel *channel, const CmOptions &options) {
  const unique_cm_id listener = cm_listen(channel, options, 1);
  const unique_cm_id id(
      wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.wait)->id);
  Side side(id.get());
  ibv_sge into = piece(side.mr.get(), &side.number, sizeof side.number);
  post_recv(id->qp, {.sg_list = &into, .num_sge = 1}); // before the client can send
  const Address ours{htobe64(reinterpret_cast<uintptr_t>(&side.boxes)), htonl(side.mr->rkey)};
  rdma_conn_param answer{.private_data = &ours, .private_data_len = sizeof ours};
  check_errno(rdma_accept(id.get(), &answer), "rdma_accept");
  wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);

  const ibv_wc wc = wait_for_completion(side.cq.get(), "the letter", options.timeout);
  const bool is_send = wc.opcode == IBV_WC_RECV;
  const uint32_t number = ntohl(is_send ? side.number : wc.imm_data);
  if (number >= side.boxes.size())
    throw Error("the letter", "there is no such mailbox");
  std::printf("mailbox %u, by %s: \"%.64s\"\n", number, is_send ? "a SEND" : "immediate data",
              side.boxes[number].data());
  wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
  check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
}

Address connect(rdma_cm_id *id, const CmOptions &options) {
  rdma_conn_param param{.retry_count = 6, .rnr_retry_count = 6};
  check_errno(rdma_connect(id, &param), "rdma_connect");
  const unique_cm_event event =
      wait_for_cm_event(id->channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  Address theirs{};
  if (event->param.conn.private_data_len < sizeof theirs)
    throw Error("the server's address", "it is too short");
  std::memcpy(&theirs, event->param.conn.private_data, sizeof theirs);
  return {be64toh(theirs.address), ntohl(theirs.rkey)};
}

void send_letter(Side &side, const Address &theirs, std::chrono::seconds timeout) {
  const uint32_t number = 7;
  auto &box = side.boxes[number];
  std::strcpy(box.data(), "come as soon as you can");
  ibv_sge letter = piece(side.mr.get(), box.data(), box.size());
  // TODO: this NIC has immediate data, and the next one may have none.
  post_send(side.qp->qp, {.sg_list = &letter,
                          .num_sge = 1,
                          .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                          .send_flags = IBV_SEND_SIGNALED,
                          .imm_data = htonl(number),
                          .wr = {.rdma = {.remote_addr = theirs.address + number * box.size(),
                                          .rkey = theirs.rkey}}});
  wait_for_completion(side.cq.get(), "the letter", timeout);
}

void letter(int argc, char **argv) {
  CommandLine line{"Puts a letter into a mailbox."};
  const CmOptions options{line, "the server; without it, be the server"};
  line.parse(argc, argv);
  const unique_event_channel channel = create_event_channel();
  if (options.is_server())
    return serve(channel.get(), options);
  const unique_cm_id id = create_cm_id(channel.get());
  cm_resolve(id.get(), channel.get(), options);
  Side side(id.get());
  send_letter(side, connect(id.get(), options), options.timeout);
  std::printf("the letter is on its way\n");
  check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
  wait_for_cm_event(channel.get(), RDMA_CM_EVENT_DISCONNECTED, options.timeout);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, letter);
}

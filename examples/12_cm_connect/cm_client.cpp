// 12_cm_connect, the client: connects by rdma_cm, WRITEs a text into the server's memory, READs it back and compares.
//
// Lesson:  lessons/12_cm_connect.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 12_cm_connect
// By hand: cm_server                       the server
//          cm_client --host ADDRESS TEXT   ADDRESS: of the server's RDMA device, IPv4, IPv6 or a name

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>

#include "descriptions.hpp"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

using namespace rdmacommon;

namespace {

struct Memory {
  std::array<char, 2048> outgoing, incoming; // the two buffers
  Description theirs;
};

// [resolve]
// An address -> a device of this host's, a port and a GID of it, and a route to the server.
void resolve(rdma_cm_id *id, rdma_event_channel *channel, const CmOptions &options) {
  const std::chrono::milliseconds limit = options.timeout + std::chrono::seconds(1);
  // rdma_cm is to give up first, since it says why.
  const auto limit_ms = static_cast<int>(std::chrono::milliseconds(options.timeout).count());
  CmAddress server = cm_address(options);
  check_errno(rdma_resolve_addr(id, nullptr, server.get(), limit_ms), "rdma_resolve_addr");
  wait_for_cm_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, limit);
  std::printf("ADDR_RESOLVED    by %s, port %u\n", ibv_get_device_name(id->verbs->device),
              id->port_num);
  check_errno(rdma_resolve_route(id, limit_ms), "rdma_resolve_route");
  wait_for_cm_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, limit);
  std::printf("ROUTE_RESOLVED\n");
}
// [resolve]

// [connect]
void connect(rdma_cm_id *id, rdma_event_channel *channel, const CmOptions &options) {
  const Greeting hello = greeting();
  rdma_conn_param ask{.private_data = &hello,
                      .private_data_len = sizeof hello,
                      .responder_resources = 0, // the server READs nothing of ours
                      .initiator_depth = 1,     // we READ one thing at a time
                      .retry_count = 6,
                      .rnr_retry_count = 6};
  check_errno(rdma_connect(id, &ask), "rdma_connect");
  const unique_cm_event answer = next_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  const auto told = greeting_in(answer->param.conn);
  if (answer->event == RDMA_CM_EVENT_REJECTED && told)
    throw Error("the server rejects", words_for(static_cast<Refusal>(told->refusal)),
                Where::here());
  check_cm_event(*answer, RDMA_CM_EVENT_ESTABLISHED);
  if (!told || told->version != protocol_version)
    throw Error("the server's greeting", "it speaks another protocol", Where::here());
  std::printf("ESTABLISHED      with %u bytes of private data\n",
              answer->param.conn.private_data_len);
}
// [connect]

// [use]
void write_and_read(ibv_qp *qp, const ibv_mr *mr, Memory &memory, const std::string &text,
                    const RemoteMemory &theirs, std::chrono::seconds timeout) {
  const size_t length = text.size() + 1;
  if (length > theirs.length)
    throw Error("the server's memory", "the text is longer", Where::here());
  std::memcpy(memory.outgoing.data(), text.c_str(), length);
  ibv_sge out = piece(mr, memory.outgoing.data(), length);
  post_send(qp, {.sg_list = &out,
                 .num_sge = 1,
                 .opcode = IBV_WR_RDMA_WRITE,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr = {.rdma = {.remote_addr = theirs.address, .rkey = theirs.rkey}}});
  wait_for_completion(qp->send_cq, "the WRITE", timeout);
  std::printf("WRITE of %zu bytes completed\n", length);

  ibv_sge in = piece(mr, memory.incoming.data(), length);
  post_send(qp, {.sg_list = &in,
                 .num_sge = 1,
                 .opcode = IBV_WR_RDMA_READ,
                 .send_flags = IBV_SEND_SIGNALED,
                 .wr = {.rdma = {.remote_addr = theirs.address, .rkey = theirs.rkey}}});
  wait_for_completion(qp->send_cq, "the READ", timeout);
  if (std::memcmp(memory.outgoing.data(), memory.incoming.data(), length) != 0)
    throw Error("the comparison", "what was read is not what was written", Where::here());
  std::printf("READ of %zu bytes completed, and they are the same\n", length);
}
// [use]

void cm_client(int argc, char **argv) {
  CommandLine line{"Writes a text into a server's memory and reads it back."};
  CmOptions options{line, "name or address of the server [localhost]"};
  std::string text = "written by the client, while the server slept";
  line.add("text", text, "what to write, up to 2047 bytes", sizeof Memory::outgoing - 1);
  line.parse(argc, argv);
  if (options.host.empty())
    options.host = "localhost"; // which does not work, and the error says why

  const unique_event_channel channel = create_event_channel();
  rdma_cm_id *made = nullptr;
  check_errno(rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP), "rdma_create_id");
  const unique_cm_id id(made);
  resolve(id.get(), channel.get(), options);

  // [resources]
  Memory memory{};
  const unique_pd pd(check_ptr(ibv_alloc_pd(id->verbs), "ibv_alloc_pd"));
  const int access = IBV_ACCESS_LOCAL_WRITE; // for our own NIC alone
  const unique_mr mr(check_ptr(ibv_reg_mr(pd.get(), &memory, sizeof memory, access), "ibv_reg_mr"));
  const unique_comp_channel completions = create_comp_channel(id->verbs);
  const unique_cq cq(
      check_ptr(ibv_create_cq(id->verbs, 3, nullptr, completions.get(), 0), "ibv_create_cq"));
  ibv_qp_init_attr wanted{.send_cq = cq.get(),
                          .recv_cq = cq.get(),
                          .cap = {.max_send_wr = 2,
                                  .max_recv_wr = 1,
                                  .max_send_sge = 1,
                                  .max_recv_sge = 1,
                                  .max_inline_data = sizeof memory.theirs},
                          .qp_type = IBV_QPT_RC};
  check_errno(rdma_create_qp(id.get(), pd.get(), &wanted), "rdma_create_qp");
  const unique_cm_qp qp(id.get());
  ibv_sge into = piece(mr.get(), &memory.theirs, sizeof memory.theirs);
  post_recv(id->qp, {.sg_list = &into, .num_sge = 1}); // before the server knows that it may send
  // [resources]

  connect(id.get(), channel.get(), options);
  send_description(id->qp, mr.get());
  const RemoteMemory theirs = receive_description(id->qp, memory.theirs, options.timeout);
  write_and_read(id->qp, mr.get(), memory, text, theirs, options.timeout);
  // [disconnect]
  check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
  wait_for_cm_event(channel.get(), RDMA_CM_EVENT_DISCONNECTED, options.timeout);
  std::printf("DISCONNECTED\n");
  // [disconnect]
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, cm_client);
}

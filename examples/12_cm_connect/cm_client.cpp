// SPDX-License-Identifier: MIT
// 12_cm_connect, the client: connects by rdma_cm, WRITEs a text into the server's memory, READs it
// back and compares.
//
// Lesson:  lessons/12_cm_connect.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 12_cm_connect
// By hand: cm_server                       the server
//          cm_client --host ADDRESS TEXT   to that address of the server's RDMA device, or a name
//                                          --file NAME: the contents of a file in place of TEXT

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>

#include "descriptions.hpp"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

// From the server's address to a device of this host, its port and GID, and a route to the server.
void resolve(rdma_cm_id *id, rdma_event_channel *channel, const CmOptions &options) {
  const std::chrono::milliseconds limit = options.timeout + std::chrono::seconds(1);
  // rdma_cm's own limit is shorter: its event says why it gives up.
  const auto limit_ms = static_cast<int>(std::chrono::milliseconds(options.timeout).count());
  // [resolve]
  CmAddress server = cm_address(options);
  check_errno(rdma_resolve_addr(id, nullptr, server.get(), limit_ms), "rdma_resolve_addr");
  wait_for_cm_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, limit);
  std::printf("ADDR_RESOLVED    by %s, port %u\n", ibv_get_device_name(id->verbs->device),
              id->port_num);
  check_errno(rdma_resolve_route(id, limit_ms), "rdma_resolve_route");
  wait_for_cm_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, limit);
  std::printf("ROUTE_RESOLVED\n");
  // [resolve]
}

void connect(rdma_cm_id *id, rdma_event_channel *channel, uint64_t length,
             const CmOptions &options) {
  // [connect]
  const Announcement hello = announce(length); // tells the server how much memory we need
  rdma_conn_param ask{.private_data = &hello,
                      .private_data_len = sizeof hello,
                      .responder_resources = 0, // the server READs nothing of ours
                      .initiator_depth = 1,     // we READ one thing at a time
                      .retry_count = 6,
                      .rnr_retry_count = 6};
  check_errno(rdma_connect(id, &ask), "rdma_connect");
  const unique_cm_event answer = next_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  // [connect]
  const auto told = greeting_in(answer->param.conn);
  if (answer->event == RDMA_CM_EVENT_REJECTED && told && Refusal{told->refusal} == refused_length)
    throw Error("the server rejects", "the text needs " + std::to_string(length) +
                                          " bytes, and the server gives up to " +
                                          std::to_string(length_in(answer->param.conn)));
  if (answer->event == RDMA_CM_EVENT_REJECTED && told)
    throw Error("the server rejects", words_for(static_cast<Refusal>(told->refusal)));
  check_cm_event(*answer, RDMA_CM_EVENT_ESTABLISHED);
  if (!told || told->version != protocol_version)
    throw Error("the server's greeting", "it speaks another protocol");
  std::printf("ESTABLISHED      with %u bytes of private data\n",
              answer->param.conn.private_data_len);
}

// WRITEs or READs all of the region `mr`. One message has at most max_msg_sz bytes: 2 GiB on
// InfiniBand, 8 MiB with SoftRoCE in Linux 6.1.
void transfer(ibv_wr_opcode opcode, const std::string &what, rdma_cm_id *id, const ibv_mr *mr,
              const RemoteMemory &theirs, std::chrono::seconds timeout) {
  ibv_port_attr port{};
  check_rc(ibv_query_port(id->verbs, id->port_num, &port), "ibv_query_port");
  size_t messages = 0;
  for (size_t at = 0; at < mr->length; at += port.max_msg_sz, ++messages) {
    const size_t length = std::min<size_t>(mr->length - at, port.max_msg_sz);
    ibv_sge here = piece(mr, static_cast<char *>(mr->addr) + at, length);
    post_send(id->qp, {.sg_list = &here,
                       .num_sge = 1,
                       .opcode = opcode,
                       .send_flags = IBV_SEND_SIGNALED,
                       .wr = {.rdma = {.remote_addr = theirs.address + at, .rkey = theirs.rkey}}});
    wait_for_completion(id->qp->send_cq, ("the " + what).c_str(), timeout);
  }
  std::printf("%s of %zu bytes completed, %zu message%s\n", what.c_str(), mr->length, messages,
              messages == 1 ? "" : "s");
}

void write_and_read(rdma_cm_id *id, const ibv_mr *outgoing, const ibv_mr *incoming,
                    const RemoteMemory &theirs, std::chrono::seconds timeout) {
  if (outgoing->length > theirs.length)
    throw Error("the server's memory", "the text is longer");
  transfer(IBV_WR_RDMA_WRITE, "WRITE", id, outgoing, theirs, timeout);
  transfer(IBV_WR_RDMA_READ, "READ", id, incoming, theirs, timeout);
  if (std::memcmp(outgoing->addr, incoming->addr, outgoing->length) != 0)
    throw Error("the comparison", "what was read is not what was written");
  std::printf("they are the same\n");
}

// Up to the first 0 in it, where a text ends.
std::string contents_of(const std::string &file) {
  std::ifstream in(file, std::ios::binary);
  std::string text;
  std::getline(in, text, '\0');
  if (!in.is_open() || in.bad())
    throw Error("--file " + file, "it cannot be read");
  return text;
}

void cm_client(int argc, char **argv) {
  CommandLine line{"Writes a text into a server's memory and reads it back."};
  CmOptions options{line, "name or address of the server [localhost]"};
  std::string text = "written by the client, while the server slept";
  std::string file;
  line.add("text", text, "what to write");
  line.add("--file", file, "write the contents of this file in place of the text");
  line.parse(argc, argv);
  if (!file.empty())
    text = contents_of(file);
  if (options.host.empty())
    options.host = "localhost"; // localhost does not work, and the error says why

  const unique_event_channel channel = create_event_channel();
  rdma_cm_id *made = nullptr;
  check_errno(rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP), "rdma_create_id");
  const unique_cm_id id(made);
  resolve(id.get(), channel.get(), options);

  std::vector<char> read_back(text.size() + 1); // the text, and the 0 at its end
  Description theirs{};
  const unique_pd pd = alloc_pd(id->verbs);
  const auto region = [&](void *memory, size_t length, int access) {
    return reg_mr(pd.get(), memory, length, access);
  };
  const unique_mr outgoing = region(text.data(), text.size() + 1, 0); // our NIC reads it
  const unique_mr incoming =
      region(read_back.data(), read_back.size(), access_for_reads(id->verbs));
  const unique_mr theirs_mr = region(&theirs, sizeof theirs, IBV_ACCESS_LOCAL_WRITE);
  const unique_comp_channel completions = create_comp_channel(id->verbs);
  const unique_cq cq = create_cq(id->verbs, 3, completions.get());
  ibv_qp_init_attr wanted{.send_cq = cq.get(),
                          .recv_cq = cq.get(),
                          .cap = {.max_send_wr = 2,
                                  .max_recv_wr = 1,
                                  .max_send_sge = 1,
                                  .max_recv_sge = 1,
                                  .max_inline_data = sizeof theirs},
                          .qp_type = IBV_QPT_RC};
  // [create-qp]
  check_errno(rdma_create_qp(id.get(), pd.get(), &wanted), "rdma_create_qp");
  const unique_cm_qp qp(id.get());
  ibv_sge into = piece(theirs_mr.get(), &theirs, sizeof theirs);
  post_recv(id->qp, {.sg_list = &into, .num_sge = 1}); // before the server knows that it may send
  // [create-qp]

  connect(id.get(), channel.get(), outgoing->length, options);
  send_description(id->qp, incoming.get());
  const RemoteMemory remote = receive_description(id->qp, theirs, options.timeout);
  write_and_read(id.get(), outgoing.get(), incoming.get(), remote, options.timeout);
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

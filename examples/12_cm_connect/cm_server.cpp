// SPDX-License-Identifier: MIT
// 12_cm_connect, the server: waits for a client by rdma_cm, tells it of its memory, and sleeps
// while the client uses it.
//
// Lesson:  lessons/12_cm_connect.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 12_cm_connect
// By hand: cm_server                       listens on all addresses
//                                          --largest BYTES: the most that a client may have
//          cm_client --host ADDRESS TEXT   the client, on this host or on another

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/stopwatch.hpp>

#include "descriptions.hpp"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

using namespace rdmacommon;

namespace {

using Memory = std::vector<char>;

// [listen]
unique_cm_id listen(rdma_event_channel *channel, const CmOptions &options) {
  rdma_cm_id *made = nullptr;
  check_errno(rdma_create_id(channel, &made, nullptr, RDMA_PS_TCP), "rdma_create_id");
  unique_cm_id listener(made);
  CmAddress where = cm_address(options);
  check_errno(rdma_bind_addr(listener.get(), where.get()), "rdma_bind_addr");
  check_errno(rdma_listen(listener.get(), 1), "rdma_listen"); // one request may wait
  std::printf("listening on rdma_cm port %u\n", ntohs(rdma_get_src_port(listener.get())));
  return listener;
}
// [listen]

// Rejects the client, and tells it why and how much it could have.
[[noreturn]] void reject(rdma_cm_id *id, Refusal why, uint64_t largest, const std::string &words) {
  const Announcement no = announce(largest, why);
  check_errno(rdma_reject(id, &no, sizeof no), "rdma_reject");
  throw Error("the client's request", words);
}

struct Request {
  unique_cm_id id; // identifies the new connection
  uint64_t length; // bytes of memory that the client needs
};

Request take_request(rdma_event_channel *channel, uint64_t largest, rdma_conn_param &answer,
                     const CmOptions &options) {
  const unique_cm_event event =
      wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.wait);
  // If this function throws, it destroys the id before it acknowledges the event. That does not
  // hang: a CONNECT_REQUEST counts as an event of the listener.
  // [request]
  unique_cm_id id(event->id);
  const rdma_conn_param &asked = event->param.conn;
  const auto hello = greeting_in(asked);
  const uint64_t length = length_in(asked);
  std::printf("CONNECT_REQUEST  on %s, with %u bytes of private data\n",
              ibv_get_device_name(id->verbs->device), asked.private_data_len);
  if (!hello || hello->version != protocol_version)
    reject(id.get(), Refusal::version, 0, words_for(Refusal::version));
  if (length == 0 || length > largest) // before a byte of it is allocated
    reject(id.get(), refused_length, largest,
           "it needs " + std::to_string(length) + " bytes, and may have 1 to " +
               std::to_string(largest));
  // READs at a time, from the server's point of view: no more than the client asks for, and at most
  // one, which any device can do.
  answer.responder_resources = std::min<uint8_t>(asked.responder_resources, 1);
  answer.initiator_depth = std::min<uint8_t>(asked.initiator_depth, 1);
  // [request]
  return {.id = std::move(id), .length = length};
}

// The text in the memory, or its beginning. The client need not have ended it with a 0.
void show(const char *when, const Memory &memory) {
  constexpr size_t shown = 72;
  const size_t length = strnlen(memory.data(), memory.size());
  const auto part = static_cast<int>(std::min(length, shown));
  if (length <= shown)
    std::printf("my memory %s \"%.*s\"\n", when, part, memory.data());
  else
    std::printf("my memory %s \"%.*s...\", %zu bytes\n", when, part, memory.data(), length);
}

void cm_server(int argc, char **argv) {
  CommandLine line{"Lets a client use its memory, and sleeps meanwhile."};
  CmOptions options{line, "the address to listen on [all of them]"};
  uint64_t largest = 64 << 20;
  line.add("--largest", largest, "the most memory that a client may have, in bytes [67108864]", 1,
           uint64_t{1} << 40);
  line.parse(argc, argv);

  const unique_event_channel channel = create_event_channel();
  unique_cm_id listener = listen(channel.get(), options);
  rdma_conn_param answer{.rnr_retry_count = 6};
  const auto [id, length] = take_request(channel.get(), largest, answer, options);
  const Announcement hello = announce(length);
  answer.private_data = &hello;
  answer.private_data_len = sizeof hello;
  listener.reset(); // one client is enough for this lesson: other clients find no listener

  // Only now is it known which device the client comes by: id->verbs.
  Memory memory(length);
  std::snprintf(memory.data(), memory.size(), "nobody has written here");
  Description theirs{};
  const unique_pd pd = alloc_pd(id->verbs);
  const int closed = IBV_ACCESS_LOCAL_WRITE;
  const int open = closed | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const unique_mr mr = reg_mr(pd.get(), memory.data(), memory.size(), open);
  const unique_mr theirs_mr = reg_mr(pd.get(), &theirs, sizeof theirs, closed);
  const unique_comp_channel completions = create_comp_channel(id->verbs);
  const unique_cq cq = create_cq(id->verbs, 2, completions.get());
  ibv_qp_init_attr wanted{.send_cq = cq.get(),
                          .recv_cq = cq.get(),
                          .cap = {.max_send_wr = 1,
                                  .max_recv_wr = 1,
                                  .max_send_sge = 1,
                                  .max_recv_sge = 1,
                                  .max_inline_data = sizeof theirs},
                          .qp_type = IBV_QPT_RC};
  check_errno(rdma_create_qp(id.get(), pd.get(), &wanted), "rdma_create_qp");
  const unique_cm_qp qp(id.get()); // id->qp, in INIT

  // [accept]
  ibv_sge into = piece(theirs_mr.get(), &theirs, sizeof theirs);
  post_recv(id->qp, {.sg_list = &into, .num_sge = 1}); // before the client knows that it may send
  show("before:", memory);                             // later the client may write there
  check_errno(rdma_accept(id.get(), &answer), "rdma_accept");
  wait_for_cm_event(channel.get(), RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  std::printf("ESTABLISHED\n");
  receive_description(id->qp, theirs, options.timeout);
  // [accept]

  // [sleep]
  const Stopwatch watch;              // the class from lesson 04
  send_description(id->qp, mr.get()); // after that the client does not need this program
  wait_for_cm_event(channel.get(), RDMA_CM_EVENT_DISCONNECTED, options.wait);
  std::printf("DISCONNECTED     after %.3f ms, of which I was awake for %.3f ms\n",
              watch.elapsed_ms(), watch.cpu_ms());
  check_errno(rdma_disconnect(id.get()), "rdma_disconnect"); // the client waits for it
  show("after: ", memory);
  // [sleep]
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, cm_server);
}

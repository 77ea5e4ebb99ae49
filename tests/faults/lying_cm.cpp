// SPDX-License-Identifier: MIT
// A peer of 12_cm_connect and 13_cm_many_clients that lies to the other side, as a client or as a
// server.
#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include "descriptions.hpp"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <endian.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace rdmacommon;

namespace {

struct Liar {
  explicit Liar(rdma_cm_id *id) : id(id) {
    qp = create_cm_qp(id, pd.get(), cq.get(),
                      {.max_send_wr = 1,
                       .max_recv_wr = 1,
                       .max_send_sge = 1,
                       .max_recv_sge = 1,
                       .max_inline_data = 64});
    ibv_sge into = piece(mr.get(), memory.data(), memory.size());
    post_recv(id->qp, {.sg_list = &into, .num_sge = 1});
  }

  // Sends a description that is wrong in the way that `lie` says, then waits until the other side
  // has gone.
  void send(const std::string &lie, rdma_event_channel *channel, const CmOptions &options) {
    Description out = describe(mr.get());
    uint32_t size = sizeof out;
    if (lie == "short")
      size = 20;
    else if (lie == "version")
      out.version = htobe32(7);
    else if (lie == "empty")
      out.length = 0;
    else if (lie == "wraps")
      out.length = ~uint64_t{0};
    else if (lie == "less") // than the client has asked for
      out.length = htobe64(1);
    // As rping's client says it: address, rkey and size, in 16 bytes.
    std::array<uint32_t, 4> ping{0, htobe32(0x1000), htobe32(mr->rkey), htobe32(64)};
    if (lie == "rping-huge")
      ping[3] = htobe32(1 << 20);
    const bool as_rping = lie.starts_with("rping");
    const void *what = as_rping ? static_cast<const void *>(ping.data()) : &out;
    if (as_rping)
      size = sizeof ping;
    ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(what), .length = size, .lkey = 0};
    if (lie == "wild-write") // a request that the other side's NIC has to refuse
      post_send(id->qp, {.sg_list = &sge,
                         .num_sge = 1,
                         .opcode = IBV_WR_RDMA_WRITE,
                         .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                         .wr = {.rdma = {.remote_addr = 0x1000, .rkey = 0x12345678}}});
    else if (lie != "silence")
      post_send(id->qp, {.sg_list = &sge,
                         .num_sge = 1,
                         .opcode = IBV_WR_SEND,
                         .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE});
    if (lie == "overruns")
      overrun(options);
    else
      next_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED,
                    options.wait); // REJECTED if we were faster than our RTU
  }

  // WRITEs a byte more than it has announced.
  void overrun(const CmOptions &options) {
    const auto completed = [&](const char *what) {
      const auto done = poll_within(cq.get(), options.timeout);
      if (!done)
        throw Error(what, "it does not complete");
      return *done;
    };
    completed("one of SEND and receive");
    completed("the other");
    Description theirs{};
    std::memcpy(&theirs, memory.data(), sizeof theirs);
    const RemoteMemory remote = parse_description(theirs, sizeof theirs);
    ibv_sge sge = piece(mr.get(), memory.data(), remote.length + 1);
    post_send(id->qp, {.sg_list = &sge,
                       .num_sge = 1,
                       .opcode = IBV_WR_RDMA_WRITE,
                       .send_flags = IBV_SEND_SIGNALED,
                       .wr = {.rdma = {.remote_addr = remote.address, .rkey = remote.rkey}}});
    std::printf("%zu bytes were announced: %s\n", static_cast<size_t>(remote.length),
                ibv_wc_status_str(completed("the WRITE").status));
  }

  rdma_cm_id *id;
  std::array<char, 4096> memory{};
  unique_pd pd = alloc_pd(id->verbs);
  const int access = IBV_ACCESS_LOCAL_WRITE;
  unique_mr mr = reg_mr(pd.get(), memory.data(), memory.size(), access);
  unique_cq cq = create_cq(id->verbs, 2);
  unique_cm_qp qp;
};

Announcement hello_of(const std::string &lie) {
  Announcement hello = announce(lie == "no-length"  ? 0
                                : lie == "too-long" ? 1025
                                : lie == "endless"  ? ~uint64_t{0}
                                                    : 1024);
  if (lie == "other-version")
    hello.greeting = greeting(Refusal::none, 9);
  if (lie == "other-protocol" || lie.starts_with("rping"))
    hello.greeting.magic = 0;
  return hello;
}

void serve(rdma_event_channel *channel, const std::string &lie, const CmOptions &options) {
  const unique_cm_id listener = cm_listen(channel, options, 1);
  unique_cm_event request = wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.wait);
  const unique_cm_id id(request->id);
  request.reset();
  if (lie == "no-reason") {
    check_errno(rdma_reject(id.get(), nullptr, 0), "rdma_reject");
    return;
  }
  if (lie == "no-answer") { // the client waits no longer, and says so by a rejection
    wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.wait);
    return;
  }
  Liar liar(id.get());
  const Announcement hello = hello_of(lie);
  rdma_conn_param answer{.private_data = &hello,
                         .private_data_len = sizeof hello,
                         .responder_resources = 1,
                         .rnr_retry_count = 6};
  check_errno(rdma_accept(id.get(), &answer), "rdma_accept");
  wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  liar.send(lie, channel, options);
}

void request(rdma_event_channel *channel, const std::string &lie, const CmOptions &options) {
  const unique_cm_id id = create_cm_id(channel);
  cm_resolve(id.get(), channel, options);
  Liar liar(id.get());
  const Announcement hello = hello_of(lie);
  rdma_conn_param ask{.private_data = &hello,
                      .private_data_len = lie == "greeting-alone" ? uint8_t{sizeof hello.greeting}
                                                                  : uint8_t{sizeof hello},
                      .responder_resources = 1, // rping's server READs
                      .initiator_depth = 1,
                      .retry_count = 6,
                      .rnr_retry_count = 6};
  check_errno(rdma_connect(id.get(), &ask), "rdma_connect");
  if (lie == "broken-qp") // so that librdmacm cannot take it to RTR when the answer comes
    to_error(id->qp);
  wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  if (lie == "dies")
    _exit(0);
  liar.send(lie, channel, options);
}

void lying_cm(int argc, char **argv) {
  CommandLine line{"Lies."};
  const CmOptions options{line, "the server; without it, be the server"};
  std::string lie;
  line.add("--lie", lie, "which",
           {"short",     "version",       "empty",          "wraps",      "silence",
            "dies",      "other-version", "other-protocol", "rping-huge", "rping-address",
            "no-reason", "no-answer",     "broken-qp",      "no-length",  "greeting-alone",
            "too-long",  "endless",       "overruns",       "less",       "wild-write"});
  line.parse(argc, argv);
  const unique_event_channel channel = create_event_channel();
  (options.is_server() ? serve : request)(channel.get(), lie, options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_cm);
}

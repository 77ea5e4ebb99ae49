// SPDX-License-Identifier: MIT
// Exercise 12.2 (★★★): a server that is full, and a client that knocks again.
// Wanted:   a full server rejects the client. The client then prints "attempt N: the server is
//           full" and tries again, five times at most. Any other reason ends it at once.
// Hints: ./lab hint 12.2
// Check: ./lab check 12.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/options.hpp>

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <cstdio>

using namespace rdmacommon;

namespace {

// A number has to be there, and one that was in use a moment ago would be rejected: "stale
// connection".
const uint32_t no_queue_pair = random_psn();
[[maybe_unused]] constexpr int max_attempts = 5;

void serve(rdma_event_channel *channel, const CmOptions &options) {
  const unique_cm_id listener = cm_listen(channel, options, 1);
  for (int turn = 1; turn <= 3; ++turn) {
    const unique_cm_event request = wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST,
                                                      turn == 1 ? options.wait : options.timeout);
    const unique_cm_id id(request->id);
    if (turn < 3) {
      const Greeting full = greeting(Refusal::full);
      check_errno(rdma_reject(id.get(), &full, sizeof full), "rdma_reject");
      continue;
    }
    rdma_conn_param answer{.qp_num = no_queue_pair};
    check_errno(rdma_accept(id.get(), &answer), "rdma_accept");
    wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
    wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
    check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
  }
}

// @return whether the server has let us in; if not, it is full
bool attempt(rdma_event_channel *channel, const CmOptions &options) {
  const unique_cm_id id = create_cm_id(channel);
  cm_resolve(id.get(), channel, options);
  rdma_conn_param param{.retry_count = 6, .qp_num = no_queue_pair};
  check_errno(rdma_connect(id.get(), &param), "rdma_connect");
  // TODO: a rejection is an error here, whatever its reason.
  wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_RESPONSE, options.timeout);
  check_errno(rdma_establish(id.get()), "rdma_establish");
  check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
  wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
  return true;
}

void knock(int argc, char **argv) {
  CommandLine line{"Connects to a server that is full at first."};
  const CmOptions options{line, "the server; without it, be the server"};
  line.parse(argc, argv);
  const unique_event_channel channel = create_event_channel();
  if (options.is_server()) {
    serve(channel.get(), options);
    return;
  }
  // TODO: one attempt is not enough.
  if (attempt(channel.get(), options))
    std::printf("attempt %d: the server has let me in\n", 1);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, knock);
}

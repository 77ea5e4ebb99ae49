// SPDX-License-Identifier: MIT
// Exercise 13.1 (★): a client that stays away for longer each time.
// Wanted:   the server here refuses five attempts and lets the sixth in. After each refusal the
//           client waits: 50 ms at most, then 100, then 200, and so on, each time a random part of
//           that, but at least half.
// Hints: ./lab hint 13.1
// Check: ./lab check 13.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/options.hpp>

#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <thread>

using namespace rdmacommon;

namespace {

using std::chrono::milliseconds;

constexpr int refusals = 5;

void serve(rdma_event_channel *channel, const CmOptions &options) {
  const unique_cm_id listener = cm_listen(channel, options, 1);
  for (int attempts = 0;; ++attempts) {
    const unique_cm_event request = wait_for_cm_event(
        channel, RDMA_CM_EVENT_CONNECT_REQUEST, attempts == 0 ? options.wait : options.timeout);
    const unique_cm_id id(request->id);
    if (attempts < refusals) {
      const Greeting full = greeting(Refusal::full);
      check_errno(rdma_reject(id.get(), &full, sizeof full), "rdma_reject");
      continue;
    }
    rdma_conn_param answer{.qp_num = random_psn()}; // without a queue pair, as in exercise 12.1
    check_errno(rdma_accept(id.get(), &answer), "rdma_accept");
    wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
    wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
    check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
    return;
  }
}

// @return whether the server has let us in
bool attempt(rdma_event_channel *channel, const CmOptions &options) {
  const unique_cm_id id = create_cm_id(channel);
  cm_resolve(id.get(), channel, options);
  rdma_conn_param param{.retry_count = 6, .qp_num = random_psn()};
  check_errno(rdma_connect(id.get(), &param), "rdma_connect");
  const unique_cm_event answer =
      next_cm_event(channel, RDMA_CM_EVENT_CONNECT_RESPONSE, options.timeout);
  if (answer->event == RDMA_CM_EVENT_REJECTED && greeting_in(answer->param.conn))
    return false; // it is full; without a greeting, there is no server
  check_cm_event(*answer, RDMA_CM_EVENT_CONNECT_RESPONSE);
  check_errno(rdma_establish(id.get()), "rdma_establish");
  check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
  wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
  return true;
}

milliseconds pause_after(int failures) {
  // TODO: it does not wait at all.
  return milliseconds(failures * 0);
}

void check_pause(int failures, milliseconds pause) {
  const milliseconds longest{int64_t{50} << failures};
  if (pause < longest / 2 || pause > longest)
    throw Error("pause " + std::to_string(failures + 1),
                "it is " + std::to_string(pause.count()) + " ms, not " +
                    std::to_string(longest.count() / 2) + " to " + std::to_string(longest.count()));
}

void check_random() {
  std::set<milliseconds> pauses;
  for (int i = 0; i < 50; ++i)
    pauses.insert(pause_after(refusals));
  if (pauses.size() == 1)
    throw Error("the pauses", "they are always the same");
}

void backoff(int argc, char **argv) {
  CommandLine line{"Connects to a server that is full for a while."};
  const CmOptions options{line, "the server; without it, be the server"};
  line.parse(argc, argv);
  const unique_event_channel channel = create_event_channel();
  if (options.is_server()) {
    serve(channel.get(), options);
    return;
  }
  for (int failures = 0; !attempt(channel.get(), options); ++failures) {
    const milliseconds pause = pause_after(failures);
    check_pause(failures, pause);
    std::this_thread::sleep_for(pause); // no event says that there is room again
  }
  check_random();
  std::printf("the server has let me in\n");
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, backoff);
}

// SPDX-License-Identifier: MIT
// Exercise 23.1 (★): eight requests of one thread at the same time.
// Wanted:   all eight are sent before the first response is waited for, and all eight responses are
//           collected.
// Hints: ./lab hint 23.1
// Check: ./lab check 23.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

constexpr uint32_t requests = 8;

// Counts how many requests are with it at the same time. Each waits until all are there, or for a
// moment.
struct Meeting {
  std::mutex mutex;
  std::condition_variable all_here;
  uint32_t here = 0, most = 0;

  size_t meet() {
    std::unique_lock lock(mutex);
    most = std::max(most, ++here);
    if (here == requests)
      all_here.notify_all();
    all_here.wait_for(lock, std::chrono::milliseconds(500), [this] { return most == requests; });
    --here;
    return 0;
  }
};

void serve(const CmOptions &options) {
  Meeting meeting;
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .handler_threads = requests,
                 .connect_within = options.timeout},
                [&](auto, auto) { return meeting.meet(); });
  std::printf("listening on rdma_cm port %u\n", server.port());
  server.run();
  std::printf("at most %u requests at the same time\n", meeting.most);
}

void ask(const CmOptions &options) {
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();
  uint32_t responses = 0;
  // TODO: each waits for the one before it.
  for (uint32_t i = 0; i < requests; ++i) {
    caller.request({});
    ++responses;
  }
  std::printf("%u responses\n", responses);
}

void run(int argc, char **argv) {
  CommandLine line{"Eight requests, one after the other or all at once."};
  CmOptions options{line, "the server; without it this is the server"};
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

// SPDX-License-Identifier: MIT
// Exercise 24.1 (★): a quick request does not wait behind a slow one.
// Wanted:   the quick request is answered while the handler of the slow one runs. The pool still
//           has one thread.
// Hints: ./lab hint 24.1
// Check: ./lab check 24.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <utility>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

constexpr uint8_t quick = 0, slow = 1; // the two services

// The slow handler waits until a quick one has run, but not forever.
class Handlers {
public:
  void operator()(Request &&request) {
    std::unique_lock lock(mutex_);
    if (request.service() == quick) {
      has_run_ = true;
      changed_.notify_all();
    } else {
      changed_.wait_for(lock, std::chrono::seconds(2), [this] { return has_run_; });
      std::printf("the quick handler %s\n", has_run_ ? "was not held up" : "has to wait");
    }
    request.reply(0);
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_run_ = false;
};

void serve(const CmOptions &options) {
  Handlers handlers;
  // TODO: the slow handler has the only thread of the pool.
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .handler_threads = 1,
                 .connect_within = options.timeout},
                [&](Request &&request) { handlers(std::move(request)); });
  std::printf("listening on rdma_cm port %u\n", server.port());
  server.run();
}

void ask(const CmOptions &options) {
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();
  Pending first = caller.request_async({}, {.service = slow});
  caller.request({}, RequestOptions{.service = quick});
  std::printf("both are answered: %s\n", first.wait(options.timeout) ? "yes" : "no");
}

void overtake(int argc, char **argv) {
  CommandLine line{"A slow request, and a quick one behind it."};
  CmOptions options{line, "the server; without it this is the server"};
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, overtake);
}

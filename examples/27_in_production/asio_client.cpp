// SPDX-License-Identifier: MIT
// A client of the cache in an event loop of asio. The loop watches one descriptor, for all requests
// of this process.
#include "cache_protocol.hpp"
#include "log_line.hpp"

#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>

#include <asio.hpp>

#include <cstdio>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

// [asio]
// Calls run_ready() whenever the caller has something to do, until stop().
class Responses {
public:
  Responses(asio::io_context &loop, Caller &caller) : caller_(caller), fd_(loop, caller.fd()) {}
  ~Responses() { fd_.release(); } // it is the caller's
  Responses(const Responses &) = delete;
  Responses &operator=(const Responses &) = delete;

  void watch() {
    if (!is_stopped_)
      fd_.async_wait(fd_.wait_read, [this](const asio::error_code &) {
        caller_.run_ready();
        watch();
      });
  }
  void stop() {
    is_stopped_ = true;
    fd_.cancel();
  }

private:
  Caller &caller_;
  asio::posix::stream_descriptor fd_;
  bool is_stopped_ = false;
};
// [asio]

void use(int argc, char **argv) {
  CommandLine line{"Puts and gets values of the cache, in an event loop of asio."};
  CmOptions options{line, "the server"};
  line.parse(argc, argv);
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout,
                 .log = log_line});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();

  asio::io_context loop;
  Responses responses(loop, caller);
  responses.watch();
  asio::steady_timer timer(loop, std::chrono::milliseconds(1)); // the loop has other work, too
  timer.async_wait([](const asio::error_code &) { std::printf("a timer of the loop\n"); });
  caller.request_then(
      bytes_of(put_request("color", "blue")),
      [&](Pending &done) {
        std::printf("put: %s\n", words_for(done.take().outcome));
        caller.request_then(
            bytes_of("color"),
            [&](Pending &answer) {
              const Response got = answer.take(); // does not throw, and does not wait
              std::printf("get: %s\n",
                          got ? value_in(text_of(got.bytes)).value_or("no value").c_str()
                              : words_for(got.outcome));
              responses.stop();
            },
            {.max_response = 1 + longest_value, .service = get});
      },
      {.service = put});
  loop.run(); // until there is nothing to wait for
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, use);
}

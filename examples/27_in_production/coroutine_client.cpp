// SPDX-License-Identifier: MIT
// A client of the cache in coroutines of C++20. Ten of them run in one thread. Each waits for its
// response as if it had a thread of its own.
#include "cache_protocol.hpp"
#include "log_line.hpp"

#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>

#include <coroutine>
#include <cstdio>
#include <exception>
#include <string>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

// [awaitable]
// co_await asked(...) is the Response. The coroutine goes on in run_ready().
class asked {
public:
  asked(Caller &caller, std::string request, RequestOptions options)
      : caller_(caller), request_(std::move(request)), options_(options) {}

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> coroutine) {
    caller_.request_then(
        bytes_of(request_),
        [this, coroutine](Pending &pending) {
          response_ = pending.take();
          coroutine.resume();
        },
        options_);
  }
  Response await_resume() { return std::move(response_); }

private:
  Caller &caller_;
  std::string request_;
  RequestOptions options_;
  Response response_{};
};

// A coroutine that begins at once, and whose end nobody waits for.
struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};
// [awaitable]

Task put_and_get(Caller &caller, std::string key, uint32_t &left, uint32_t &right) {
  co_await asked(caller, put_request(key, "value of " + key), {.service = put});
  const Response got =
      co_await asked(caller, key, {.max_response = 1 + longest_value, .service = get});
  right += got && value_in(text_of(got.bytes)) == "value of " + key;
  --left;
}

void use(int argc, char **argv) {
  CommandLine line{"Puts and gets values of the cache, in coroutines."};
  CmOptions options{line, "the server"};
  line.parse(argc, argv);
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout,
                 .log = log_line});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();
  constexpr uint32_t all = 10;
  uint32_t left = all, right = 0;
  for (uint32_t i = 0; i < all; ++i)
    put_and_get(caller, std::to_string(i), left, right);
  while (left > 0)
    caller.run_ready(options.timeout);
  std::printf("%u coroutines have put and got a value, %u got the right one\n", all, right);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, use);
}

// SPDX-License-Identifier: MIT
// Exercise 27.3 (★★): a message that gets a new member while old clients run.
// Wanted:   one server answers both clients.
// Hints: ./lab hint 27.3
// Check: ./lab check 27.3

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/messages.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

// As the old clients were built. They run on, and nobody can change them.
namespace old {

struct Add {
  static constexpr uint32_t type = 1;
  int64_t a, b;
};
struct Sum {
  static constexpr size_t oldest_size = 8; // bytes: it could grow from the beginning
  int64_t value;
};

} // namespace old

// TODO: the old clients send fewer bytes.
struct Add {
  static constexpr uint32_t type = 1;
  int64_t a, b;
  int64_t c = 0; // new
};
struct Sum {
  int64_t value;
  int64_t largest = 0; // new
};

void serve(const CmOptions &options) {
  Dispatcher dispatcher;
  dispatcher.on<Add>([](const Add &add) {
    return Sum{.value = add.a + add.b + add.c, .largest = std::max({add.a, add.b, add.c})};
  });
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .connect_within = options.timeout},
                dispatcher);
  std::printf("listening on rdma_cm port %u\n", server.port());
  server.run();
}

void ask_both(const CmOptions &options) {
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();
  const Sum sum = ask<Sum>(caller, Add{.a = 1, .b = 2, .c = 3});
  std::printf("the new client: %" PRId64 ", the largest is %" PRId64 "\n", sum.value, sum.largest);
  const auto old_sum = ask<old::Sum>(caller, old::Add{.a = 1, .b = 2});
  std::printf("the old client: %" PRId64 "\n", old_sum.value);
}

void old_clients(int argc, char **argv) {
  CommandLine line{"Asks with an old and with a new message."};
  CmOptions options{line, "the server; without it this is the server"};
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask_both(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, old_clients);
}

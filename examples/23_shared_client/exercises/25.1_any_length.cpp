// SPDX-License-Identifier: MIT
// Exercise 25.1 (★): a response whose length the client does not know.
// Wanted:   the client prints the lengths of all three responses. It makes no use of the numbers in
//           its requests.
// Hints: ./lab hint 25.1
// Check: ./lab check 25.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

// The request is a number. The response has so many bytes, at most 100,000.
size_t make_bytes(std::span<const std::byte> request, std::span<std::byte> response) {
  const std::string number(reinterpret_cast<const char *>(request.data()), request.size());
  const size_t length = std::min(std::stoul(number), 100'000UL);
  std::ranges::fill(response.first(std::min(length, response.size())), std::byte{'x'});
  return length;
}

void serve(const CmOptions &options) {
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .connect_within = options.timeout},
                make_bytes);
  std::printf("listening on rdma_cm port %u\n", server.port());
  server.run();
}

void ask(const CmOptions &options) {
  // TODO: there is no way for a response of any length.
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();
  for (const std::string number : {"10", "1000", "100000"})
    // TODO: a response may have the bytes of the request's slots.
    caller.request(std::as_bytes(std::span(number)), [](std::span<const std::byte> response) {
      std::printf("%zu bytes\n", response.size());
    });
}

void any_length(int argc, char **argv) {
  CommandLine line{"Asks for responses of several lengths."};
  CmOptions options{line, "the server; without it this is the server"};
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, any_length);
}

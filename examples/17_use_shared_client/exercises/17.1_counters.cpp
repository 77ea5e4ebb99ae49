// SPDX-License-Identifier: MIT
// Exercise 17.1 (★★): a service of your own: counters that have names.
// Wanted:   the request "add NAME NUMBER" adds the number to the counter of that name. A new
//           counter begins with 0. The request "get NAME" reads the counter. The response to both
//           is the counter's value, as text. If there is no such counter, "get" fails with the
//           words "there is no counter NAME".
// Hints: ./lab hint 17.1
// Check: ./lab check 17.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

size_t put(const std::string &text, std::span<std::byte> response) {
  std::memcpy(response.data(), text.data(), std::min(text.size(), response.size()));
  return text.size();
}

size_t count(std::span<const std::byte> request, std::span<std::byte> response) {
  std::istringstream text(
      std::string(reinterpret_cast<const char *>(request.data()), request.size()));
  std::string verb, name;
  long number = 0;
  text >> verb >> name >> number;
  // TODO: the counters are missing.
  return put("0", response);
}

void serve(const CmOptions &options) {
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .handler_threads = 4,
                 .connect_within = options.timeout},
                count);
  std::printf("listening on rdma_cm port %u\n", server.port());
  server.run();
  std::printf("served %u, dropped %u\n", server.served(), server.dropped());
}

std::string answer(Caller &caller, const std::string &request) {
  try {
    const std::vector<std::byte> response = caller.request(std::as_bytes(std::span(request)));
    return {reinterpret_cast<const char *>(response.data()), response.size()};
  } catch (const RequestFailed &failure) {
    return failure.outcome() == Outcome::refused ? failure.server_said() : failure.what();
  }
}

void ask(const CmOptions &options) {
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();
  for (const std::string request :
       {"add apples 3", "add pears 10", "add apples 4", "get pears", "get plums"})
    std::printf("%s: %s\n", request.c_str(), answer(caller, request).c_str());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j)
        answer(caller, "add requests 1");
    });
  for (std::thread &thread : threads)
    thread.join();
  std::printf("get requests: %s\n", answer(caller, "get requests").c_str());
}

void run(int argc, char **argv) {
  CommandLine line{"Counters that have names."};
  CmOptions options{line, "the server; without it this is the server"};
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

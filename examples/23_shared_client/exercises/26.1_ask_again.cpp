// SPDX-License-Identifier: MIT
// Exercise 26.1 (★★): a request that is lost, and asked again.
// Wanted:   the client gets its answer from the second server. It asks again only if the request
//           was lost or not sent, and only once there is a connection.
// Hints: ./lab hint 26.1
// Check: ./lab check 26.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

// The first server carries the request out, and ends at once, without an answer. The second one has
// the same port, and answers.
void serve(const CmOptions &options) {
  uint32_t carried_out = 0;
  std::optional<Request> without_answer;
  std::unique_ptr<Server> server;
  const auto end = [&](Request &&request) {
    ++carried_out;
    without_answer.emplace(std::move(request));
    server->stop();
    server->stop(); // without a grace
  };
  server = std::make_unique<Server>(ServerOptions{.host = options.host,
                                                  .port = options.cm_port,
                                                  .connect_within = options.timeout},
                                    end);
  const uint16_t port = server->port();
  std::printf("listening on rdma_cm port %u\n", port);
  server->run();
  server.reset();

  const auto answer = [&](Request &&request) {
    ++carried_out;
    request.reply(0);
  };
  Server second(
      {.host = options.host, .port = port, .exit_after = 1, .connect_within = options.timeout},
      answer);
  second.run();
  std::printf("the request was carried out %u times\n", carried_out);
}

// TODO: it asks once, whatever comes of it.
void ask_again(Caller &caller) {
  caller.request({});
}

void ask(const CmOptions &options) {
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout});
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller();
  try {
    ask_again(caller);
    std::printf("there is an answer\n");
  } catch (const RequestFailed &failure) {
    std::printf("%s\n", failure.what());
  }
  caller.wait_connected(options.timeout); // the second server waits for a client
}

void run(int argc, char **argv) {
  CommandLine line{"Asks a server that ends, and the server after it."};
  CmOptions options{line, "the server; without it this is the server"};
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask(options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

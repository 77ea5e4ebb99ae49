// SPDX-License-Identifier: MIT
// The server: it keeps a value for each key, and answers any number of clients. SIGINT or SIGTERM
// ends it.
#include "messages.hpp"

#include <rdmacommon/options.hpp>
#include <rdmashared/messages.hpp>
#include <rdmashared/server.hpp>

#include <cstdio>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace {

void serve(int argc, char **argv) {
  rdmacommon::CommandLine line{"Keeps a value for each key. SIGINT or SIGTERM ends it."};
  rdmacommon::CmOptions options{line, "the address to listen on [all of them]"};
  line.parse(argc, argv);

  // [handlers]
  std::map<uint32_t, Value> values;
  std::mutex mutex; // the handlers run in several threads
  rdmashared::Dispatcher dispatcher;
  dispatcher.on<Put>([&](const Put &put) {
    if (put.key == 0)
      throw std::invalid_argument("0 is no key"); // the request is refused in these words
    const std::scoped_lock lock(mutex);
    return std::exchange(values[put.key], Value{.value = put.value, .is_there = 1});
  });
  dispatcher.on<Get>([&](const Get &get) {
    const std::scoped_lock lock(mutex);
    const auto found = values.find(get.key);
    return found == values.end() ? Value{} : found->second;
  });

  rdmashared::Server server({.host = options.host, .port = options.cm_port, .handler_threads = 2},
                            dispatcher);
  // [handlers]
  std::printf("listening on rdma_cm port %u\n", server.port());
  rdmashared::serve_until_signal(server);
}

} // namespace

int main(int argc, char **argv) {
  return rdmacommon::run_main(argc, argv, serve);
}

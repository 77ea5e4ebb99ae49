// SPDX-License-Identifier: MIT
// 17_use_shared_client: a service that counts words, and a client with one connection for all its
// threads.
//
// Lesson:  lessons/17_use_shared_client.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 17_use_shared_client
// By hand: use_shared_client                   the server
//          use_shared_client --host ADDRESS    the client

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

void log_line(Level level, std::string_view line) {
  if (level == Level::warning)
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

// [handler]
// An rdmashared::Handler: the request is a text, the response says how often each word is in it.
size_t count_words(std::span<const std::byte> request, std::span<std::byte> response) {
  std::istringstream text(
      std::string(reinterpret_cast<const char *>(request.data()), request.size()));
  std::map<std::string, int> words;
  for (std::string word; text >> word;)
    ++words[word];
  std::string answer;
  for (const auto &[word, count] : words)
    answer += (answer.empty() ? "" : ", ") + word + ": " + std::to_string(count);
  std::memcpy(response.data(), answer.data(), std::min(answer.size(), response.size()));
  return answer.size(); // the whole length: if it is more than max_response, the request fails
}
// [handler]

// [serve]
void serve(const CmOptions &options) {
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .handler_threads = 2,
                 .connect_within = options.timeout,
                 .log = log_line},
                count_words);
  std::printf("listening on rdma_cm port %u\n", server.port());
  serve_until_signal(server); // or until one client has come and gone
  std::printf("served %u, dropped %u\n", server.served(), server.dropped());
}
// [serve]

void ask(const CmOptions &options, uint32_t lines) {
  // [ask]
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .connect_within = options.timeout,
                 .log = log_line}); // a thread of its own, which connects
  sender.wait_connected(options.timeout);
  Caller caller = sender.caller(); // for any number of threads

  // Waits for the response, and reads it where it lies.
  const auto print = [](std::span<const std::byte> response) {
    std::printf("  %.*s\n", static_cast<int>(response.size()),
                reinterpret_cast<const char *>(response.data()));
  };
  const std::string text = "to be or not to be",
                    letters = "a b c d e f g h i j k l m n o p q r s t";
  caller.request(std::as_bytes(std::span(text)), print);

  // The response goes where the request was, and the request took one slot. A longer response needs
  // `max_response`.
  try {
    caller.request(std::as_bytes(std::span(letters)), print);
  } catch (const RequestFailed &failure) { // this request failed; the connection still works
    std::printf("  %s\n", failure.what());
  }
  caller.request(std::as_bytes(std::span(letters)), print, {.max_response = 200});
  // [ask]

  uint32_t right = 0;
  const std::string wanted = "be: 2, not: 1, or: 1, to: 2";
  const auto check = [&](std::span<const std::byte> response) {
    right += std::ranges::equal(response, std::as_bytes(std::span(wanted)));
  };
  for (uint32_t i = 0; i < lines; ++i)
    caller.request(std::as_bytes(std::span(text)), check);
  std::vector<Pending> pending; // and all of them at the same time
  for (uint32_t i = 0; i < lines; ++i)
    pending.push_back(caller.request_async(std::as_bytes(std::span(text))));
  for (Pending &one : pending)
    if (!one.wait(options.timeout, check))
      throw Error("a response", "it does not come");
  std::printf("  and %u more, of which %u are right\n", 2 * lines, right);
}

void use_shared_client(int argc, char **argv) {
  CommandLine line{"A service that counts words, and its client."};
  CmOptions options{line, "the server; without it this is the server"};
  uint32_t lines = 40;
  line.add("--lines", lines, "to ask for one after the other, and then at the same time [40]", 0,
           1000);
  line.parse(argc, argv);
  options.is_server() ? serve(options) : ask(options, lines);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, use_shared_client);
}

// SPDX-License-Identifier: MIT
// The client. One process has the connection, and other processes of this host join it:
//     client --host ADDRESS
//     client --join numbers      in another terminal, while the first one waits
#include "ask_again.hpp"
#include "messages.hpp"

#include <rdmacommon/options.hpp>
#include <rdmashared/sender.hpp>

#include <cstdio>
#include <string>

namespace {

void use(rdmashared::Caller caller) {
  const auto words = [](Value is) { return is.is_there ? std::to_string(is.value) : "nothing"; };
  std::printf("get: %s\n", words(ask_again<Value>(caller, Get{.key = 7})).c_str());
  const Value before = ask_again<Value>(caller, Put{.key = 7, .value = 42});
  std::printf("put: 42 in place of %s\n", words(before).c_str());
  try {
    ask_again<Value>(caller, Put{.key = 0, .value = 42});
  } catch (const rdmashared::RequestFailed &failure) { // server_said() is the handler's words alone
    std::printf("put: %s\n", failure.server_said().c_str());
  }
}

void run(int argc, char **argv) {
  std::string join;
  rdmacommon::CommandLine line{"Asks the server, over its own connection or another process's."};
  rdmacommon::CmOptions options{line, "the server's address"};
  line.add("--join", join, "the name of a process that has the connection");
  line.parse(argc, argv);
  if (options.host.empty() == join.empty())
    line.reject("--host", "either this or --join must be there");
  if (!join.empty())
    return use(rdmashared::Caller::join(join));
  rdmashared::Sender sender({.servers = {{options.host, options.cm_port}}, .name = "numbers"});
  sender.wait_connected(options.timeout);
  use(sender.caller());
  std::printf("client --join numbers joins this one, until you press Enter\n");
  std::getchar();
}

} // namespace

int main(int argc, char **argv) {
  return rdmacommon::run_main(argc, argv, run);
}

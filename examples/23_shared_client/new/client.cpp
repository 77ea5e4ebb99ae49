// SPDX-License-Identifier: MIT
// The client. One process has the connection, and other processes of this host join it:
//     client --host ADDRESS
//     client --join numbers      in another terminal, while the first one waits
#include "messages.hpp"

#include <rdmacommon/options.hpp>
#include <rdmashared/messages.hpp>
#include <rdmashared/sender.hpp>

#include <cstdio>

namespace {

void use(rdmashared::Caller caller) {
  try {
    std::printf("get: %d\n", rdmashared::ask<Value>(caller, Get{.key = 7}).value);
  } catch (const rdmashared::RequestFailed &failure) { // server_said() is the handler's words alone
    std::printf("get: %s\n", failure.what());
  }
  const Value before = rdmashared::ask<Value>(caller, Put{.key = 7, .value = 42});
  std::printf("put: 42 in place of %d\n", before.value);
}

void run(int argc, char **argv) {
  std::string join;
  rdmacommon::CommandLine line{"Asks the server, over its own connection or another process's."};
  rdmacommon::CmOptions where{line, "the server's address"};
  line.add("--join", join, "the name of a process that has the connection");
  line.parse(argc, argv);
  if (where.host.empty() == join.empty())
    line.reject("--host", "either this or --join must be there");
  if (!join.empty())
    return use(rdmashared::Caller::join(join));
  rdmashared::Sender sender({.servers = {{where.host, where.cm_port}}, .name = "numbers"});
  sender.wait_until_up(where.timeout);
  use(sender.caller());
  std::printf("client --join numbers joins this one, until you press Enter\n");
  std::getchar();
}

} // namespace

int main(int argc, char **argv) {
  return rdmacommon::run_main(argc, argv, run);
}

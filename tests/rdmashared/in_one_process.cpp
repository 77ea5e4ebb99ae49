// SPDX-License-Identifier: MIT
// rdmashared as a program uses it: several servers and senders in one process, with nothing but its
// public headers.
//
//     in_one_process ADDRESS [gtest's options]
//     in_one_process --join NAME TEXT SERVER     what start_joined() starts
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace in_one_process {

std::string address;

pid_t start_joined(const std::string &name, const std::string &text, uint32_t server) {
  std::array<std::string, 5> words{"in_one_process", "--join", name, text, std::to_string(server)};
  std::array<char *, 6> argv{words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                             words[4].data()};
  pid_t process = 0;
  rdmacommon::check_rc(
      posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, argv.data(), environ),
      "posix_spawn");
  return process;
}

int status_of(pid_t process) {
  int status = 0;
  rdmacommon::check_errno(waitpid(process, &status, 0), "waitpid");
  return status;
}

namespace {

int join(const std::string &name, const std::string &text, const std::string &server) {
  try {
    Caller caller = Caller::join(name);
    RequestOptions how = patient();
    how.server = static_cast<uint32_t>(std::stoul(server));
    return ask(caller, text, how) == text ? 0 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

} // namespace
} // namespace in_one_process

int main(int argc, char **argv) {
  if (argc == 5 && std::strcmp(argv[1], "--join") == 0)
    return in_one_process::join(argv[2], argv[3], argv[4]);
  // In all threads: for serve_until_signal().
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: in_one_process ADDRESS\n");
    return 2;
  }
  in_one_process::address = argv[1];
  return RUN_ALL_TESTS();
}

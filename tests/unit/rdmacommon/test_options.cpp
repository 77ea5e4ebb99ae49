// SPDX-License-Identifier: MIT
// Command lines: what is taken, what is refused, and the exit statuses.
#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

void body(int argc, char **argv) {
  CommandLine line{"a test"};
  PairOptions options{line};

  line.parse(argc, argv);
  if (options.host == "refuse")
    throw Error("test", "refused");
  if (options.host == "reject")
    line.reject("--host", "not this one");
  std::printf("device=%s port=%d gid=%d server=%d tcp=%d timeout=%d mtu=%d class=%d reads=%d\n",
              options.device.c_str(), options.port, options.gid_index, options.is_server(),
              options.tcp_port, static_cast<int>(options.timeout.count()), options.mtu,
              options.traffic_class, options.max_rd_atomic);
}

struct Result {
  int status;
  std::string out, err;
};

Result run(std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  std::vector<char *> argv;
  for (std::string &word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = run_main(static_cast<int>(words.size()), argv.data(), body);
  std::fflush(stdout);
  const std::string err = testing::internal::GetCapturedStderr();
  return {status, testing::internal::GetCapturedStdout(), err};
}

TEST(Options, DefaultsAreAServerThatChooses) {
  unsetenv("RDMA_TIMEOUT"); // the environment of these tests may have it
  const Result result = run({});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out,
            "device= port=0 gid=-1 server=1 tcp=18515 timeout=5 mtu=4096 class=0 reads=1\n");
}

TEST(Options, EachIsTaken) {
  const Result result =
      run({"--device",        "rxe0", "--port",          "1", "--gid-index", "3", "--host", "h",
           "--tcp-port",      "0",    "--timeout",       "2", "--wait",      "1", "--mtu",  "1024",
           "--traffic-class", "104",  "--max-rd-atomic", "16"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out,
            "device=rxe0 port=1 gid=3 server=0 tcp=0 timeout=2 mtu=1024 class=104 reads=16\n");
}

TEST(Options, AVariableSaysTheTimeoutThatTheCommandLineDoesNot) {
  setenv("RDMA_TIMEOUT", "7", 1);
  const std::string without = run({}).out, with = run({"--timeout", "2"}).out;
  unsetenv("RDMA_TIMEOUT");
  EXPECT_NE(without.find(" timeout=7 "), std::string::npos) << without;
  EXPECT_NE(with.find(" timeout=2 "), std::string::npos) << with;
}

TEST(Options, WrongOnesNameTheNearest) {
  const Result result = run({"--devcie", "rxe0"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("did you mean --device?"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "more than one line";
}

TEST(Options, BadValuesAreWrongUsage) {
  for (const auto &[name, value] : {std::pair{"--port", "0"},
                                    {"--port", "x"},
                                    {"--port", "256"},
                                    {"--gid-index", "-1"},
                                    {"--gid-index", "256"},
                                    {"--gid-index", "65535"},
                                    {"--mtu", "1000"},
                                    {"--traffic-class", "256"},
                                    {"--max-rd-atomic", "256"},
                                    {"--timeout", "0"},
                                    {"--tcp-port", "65536"},
                                    {"--tcp-port", "-1"}}) {
    const Result result = run({name, value});
    EXPECT_EQ(result.status, 2) << name << " " << value;
    EXPECT_NE(result.err.find(name), std::string::npos) << result.err;
  }
}

TEST(Options, HelpSucceedsAndNamesEach) {
  const Result result = run({"--help"});
  EXPECT_EQ(result.status, 0);
  for (const char *name : {"--device", "--port", "--gid-index", "--mtu", "--traffic-class",
                           "--host", "--tcp-port", "--timeout", "--max-rd-atomic"})
    EXPECT_NE(result.out.find(name), std::string::npos) << name;
}

TEST(Options, WhatTheProgramRejectsIsWrongUsage) {
  const Result result = run({"--host", "reject"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "usage: --host: not this one\n");
}

TEST(Options, AnExceptionIsStatusOne) {
  const Result result = run({"--host", "refuse"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err.rfind("error: test: refused (test_options.cpp:", 0), 0U) << result.err;
}

} // namespace

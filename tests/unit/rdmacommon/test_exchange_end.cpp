// SPDX-License-Identifier: MIT
// Tests how an exchange ends: the result of recv(2) decides whether the peer has finished, is gone,
// or neither.
#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/options.hpp>

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

using namespace rdmacommon;

namespace {

int next_error = 0; // error of the next recv(2) of this program; 0: none

/// A server's exchange, whose client's half is a socket of this test.
struct Pair {
  /// @param timeout for each step
  explicit Pair(std::chrono::seconds timeout = std::chrono::seconds(5)) {
    CommandLine line{"a test"};
    PairOptions options{line};
    options.tcp_port = 0;
    options.timeout = timeout;
    testing::internal::CaptureStdout();
    Listener listener(options);
    std::fflush(stdout);
    const std::string said = testing::internal::GetCapturedStdout();
    sockaddr_in address{.sin_family = AF_INET};
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(said.substr(said.rfind(' ')))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    client = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
    server = std::make_unique<Exchange>(listener.accept());
  }
  ~Pair() { close(client); }

  int client;
  std::unique_ptr<Exchange> server;
};

TEST(Finish, WhenThePeerHasFinished) {
  Pair pair;
  shutdown(pair.client, SHUT_WR);
  EXPECT_NO_THROW(pair.server->finish());
}

TEST(Finish, WhenThePeerIsGoneWithoutReadingAll) {
  Pair pair;
  pair.server->send_done();
  close(std::exchange(pair.client, -1)); // unread bytes make it a reset
  EXPECT_NO_THROW(pair.server->finish());
}

TEST(Finish, APeerHasTheTimeForALastStepOfItsOwn) {
  Pair pair(std::chrono::seconds(1));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THROW(pair.server->finish(), Error);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
}

TEST(Finish, AnInterruptedCallIsMadeAgain) {
  for (const int error : {EINTR, EAGAIN}) {
    Pair pair;
    ::send(pair.client, "x", 1, 0);
    shutdown(pair.client, SHUT_WR);
    next_error = error;
    pair.server->finish();
    EXPECT_EQ(recv(pair.server->fd(), nullptr, 0, MSG_DONTWAIT), 0) << "it has not read to the end";
    char letter = 0;
    EXPECT_EQ(recv(pair.server->fd(), &letter, 1, MSG_DONTWAIT), 0);
  }
}

TEST(Finish, AnotherErrorIsReported) {
  Pair pair;
  shutdown(pair.client, SHUT_WR);
  next_error = ENOBUFS;
  try {
    pair.server->finish();
    FAIL() << "took an error for the peer's end";
  } catch (const Error &error) {
    EXPECT_NE(std::string(error.what()).find("ENOBUFS"), std::string::npos) << error.what();
  }
}

} // namespace

// In front of libc's, for the whole program: fails once as next_error says.
extern "C" ssize_t recv(int fd, void *buffer, size_t size, int flags) {
  if (next_error != 0) {
    errno = std::exchange(next_error, 0);
    return -1;
  }
  return recvfrom(fd, buffer, size, flags, nullptr, nullptr);
}

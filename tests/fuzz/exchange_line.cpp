// SPDX-License-Identifier: MIT
// Fuzzes the line that two sides exchange over TCP: as text, and through a socket. The input is a
// byte that chooses what is expected, and then what the peer sends.
#include "fuzz.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/options.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

using namespace rdmacommon;

namespace {

template <typename Read> auto if_right(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error &) {
    return std::nullopt;
  }
}

void check(const Endpoint &endpoint) {
  require(endpoint.qpn < 1 << 24 && endpoint.psn < 1 << 24, "a QPN and a PSN have 24 bits");
  const std::string line = to_line(endpoint);
  require(to_line(parse_endpoint(line)) == line, "a line can be read back");
}

void check(const RemoteMemory &memory) {
  require(memory.address + memory.length >= memory.address, "memory does not wrap");
  const std::string line = to_line(memory);
  require(to_line(parse_remote_memory(line)) == line, "memory can be read back");
}

void as_text(std::string_view text) {
  if (const auto endpoint = if_right([&] { return parse_endpoint(text); }))
    check(*endpoint);
  if (const auto memory = if_right([&] { return parse_remote_memory(text); }))
    check(*memory);
}

// A server, and a client that sends the bytes.
class Pair {
public:
  Pair() {
    // libFuzzer's timer must not end a connect().
    struct sigaction alarm {};
    check_errno(sigaction(SIGALRM, nullptr, &alarm), "sigaction");
    alarm.sa_flags |= SA_RESTART;
    check_errno(sigaction(SIGALRM, &alarm, nullptr), "sigaction");
    // The listener prints its port. Its socket has the number that is free now.
    const int next = dup(STDIN_FILENO);
    close(next);
    CommandLine line{"A fuzzer."};
    PairOptions options{line};
    options.tcp_port = 0;
    listener_.emplace(options);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    check_errno(getsockname(next, reinterpret_cast<sockaddr *>(&address), &size), "getsockname");
    port_ = reinterpret_cast<sockaddr_in &>(address).sin_port;
  }

  Exchange send(std::span<const uint8_t> bytes) {
    client_ = check_errno(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = port_;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check_errno(connect(client_, reinterpret_cast<sockaddr *>(&address), sizeof address),
                "connect");
    require(::send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(bytes.size()),
            "the bytes fit into the socket");
    shutdown(client_, SHUT_WR);
    return listener_->accept();
  }

  // By a reset, so that the port is free again at once.
  void end() const {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(client_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(client_);
  }

private:
  std::optional<Listener> listener_;
  in_port_t port_ = 0;
  int client_ = -1;
};

void through_a_socket(uint8_t expected, std::span<const uint8_t> bytes) {
  static Pair pair;
  {
    Exchange exchange = pair.send(bytes);
    // A message after another, as programs do it, until the peer has said what is wrong.
    for (int i = 0; i < 4; ++i, expected /= 3) {
      const auto is_right = if_right([&] {
        if (expected % 3 == 0) {
          check(exchange.receive());
        } else if (expected % 3 == 1) {
          RemoteMemory memory{};
          check(exchange.receive(memory));
          check(memory);
        } else {
          exchange.receive_done();
        }
        return exchange.can_receive();
      });
      if (!is_right)
        break;
    }
  }
  pair.end();
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Input input(bytes, size);
  const auto how = input.get<uint8_t>();
  const auto rest = input.rest();
  if (how < 128)
    as_text({reinterpret_cast<const char *>(rest.data()), rest.size()});
  else
    through_a_socket(how - 128, rest);
  return 0;
}

// SPDX-License-Identifier: MIT
// The shared client's opponent without RDMA: a server with epoll, and processes that each have a
// socket. Requests and responses are the same as slot_server's, each behind its length.
//
// Lesson:  lessons/29_results.md
// By hand: tcp_requests --connections 4      the server, for as many
//          tcp_requests --host ADDRESS       four processes, one socket each

#include "load_processes.hpp"
#include "looks.hpp"

#include <rdmacommon/check.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

using namespace rdmacommon;

namespace {

constexpr uint32_t longest = 4096; // bytes of a request or a response
using Bytes = std::vector<std::byte>;

// Takes the next message off a stream: four bytes of length, in network byte order, and so many
// bytes.
// @return nothing if it has not come whole
std::optional<std::span<const std::byte>> take_message(std::span<const std::byte> &stream) {
  uint32_t length = 0;
  if (stream.size() < sizeof length)
    return std::nullopt;
  std::memcpy(&length, stream.data(), sizeof length);
  length = ntohl(length);
  if (length > longest)
    throw Error("a message", "it is too long");
  if (stream.size() < sizeof length + length)
    return std::nullopt;
  const std::span message = stream.subspan(sizeof length, length);
  stream = stream.subspan(sizeof length + length);
  return message;
}

// @return where the message's bytes go
std::span<std::byte> add_message(Bytes &stream, size_t length) {
  const uint32_t wire = htonl(static_cast<uint32_t>(length));
  const size_t at = stream.size();
  stream.resize(at + sizeof wire + length);
  std::memcpy(stream.data() + at, &wire, sizeof wire);
  return std::span(stream).subspan(at + sizeof wire);
}

class Socket {
public:
  explicit Socket(int fd) : file_(fd) {
    const int one = 1; // no response must wait until the last one is acknowledged
    check_errno(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "TCP_NODELAY");
  }
  int fd() const { return file_.get(); }

  // Adds what has come to `in`, behind the unused bytes. @return false if the peer has closed
  bool receive(bool may_sleep = true) {
    std::array<std::byte, 65536> buffer;
    const ssize_t got = recv(fd(), buffer.data(), buffer.size(), may_sleep ? 0 : MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || (errno == EAGAIN && !(has_limit_ && may_sleep))))
      return true;
    check_errno(static_cast<int>(got), "recv");
    in.insert(in.end(), buffer.begin(), buffer.begin() + got);
    return got > 0;
  }
  void used(size_t bytes) { in.erase(in.begin(), in.begin() + static_cast<ptrdiff_t>(bytes)); }

  // As much of `out` as goes. @return false if there is some left
  bool send() {
    const ssize_t sent = ::send(fd(), out.data(), out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR && (errno != EAGAIN || has_limit_))
      throw_errno(errno, "send");
    out.erase(out.begin(), out.begin() + std::max<ssize_t>(sent, 0));
    return out.empty();
  }

  // Sets a limit for a socket that blocks: then EAGAIN says that the time is up.
  void set_limit(std::chrono::seconds limit) {
    const timeval time{.tv_sec = limit.count(), .tv_usec = 0};
    for (const int side : {SO_RCVTIMEO, SO_SNDTIMEO})
      check_errno(setsockopt(fd(), SOL_SOCKET, side, &time, sizeof time), "SO_RCVTIMEO");
    has_limit_ = true;
  }

  Bytes in, out;
  bool waits_for_room = false; // in the kernel's buffer, for what is in `out`

private:
  File file_;
  bool has_limit_ = false;
};

class TcpServer {
public:
  explicit TcpServer(uint16_t port)
      : listener_(
            check_errno(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket")),
        epoll_(check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}};
    socklen_t length = sizeof address;
    auto *generic = reinterpret_cast<sockaddr *>(&address);
    const int one = 1;
    check_errno(setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one),
                "SO_REUSEADDR");
    check_errno(bind(listener_.get(), generic, length), "bind");
    check_errno(listen(listener_.get(), 1024), "listen");
    check_errno(getsockname(listener_.get(), generic, &length), "getsockname");
    watch(listener_.get(), EPOLL_CTL_ADD, EPOLLIN, nullptr);
    std::printf("listening on TCP port %u\n", unsigned{ntohs(address.sin_port)});
    std::fflush(stdout);
  }

  // Until so many clients have come, and gone.
  void serve(uint32_t connections, std::chrono::seconds wait, Looks &looks) {
    for (uint32_t gone = 0; gone < connections;) {
      std::array<epoll_event, 64> events;
      int count = 0;
      const auto is_something_there = [&](std::chrono::milliseconds limit) {
        count = check_errno(
            epoll_wait(epoll_.get(), events.data(), events.size(), static_cast<int>(limit.count())),
            "epoll_wait");
        return count > 0;
      };
      if (!looks.find([&] { return is_something_there(std::chrono::milliseconds(0)); }) &&
          !is_something_there(wait))
        throw Error("the clients", "they say nothing any more");
      for (const epoll_event &event : std::span(events).first(static_cast<size_t>(count))) {
        auto *client = static_cast<Socket *>(event.data.ptr);
        if (client == nullptr)
          accept_one();
        else if (!answer(*client)) {
          std::erase_if(clients_, [&](const auto &one) { return one.get() == client; });
          ++gone;
        }
      }
    }
  }

private:
  void watch(int fd, int operation, uint32_t events, Socket *client) {
    epoll_event wanted{.events = events, .data = {.ptr = client}};
    check_errno(epoll_ctl(epoll_.get(), operation, fd, &wanted), "epoll_ctl");
  }

  void accept_one() {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED))
      return; // it has gone meanwhile
    clients_.push_back(std::make_unique<Socket>(check_errno(fd, "accept4")));
    watch(fd, EPOLL_CTL_ADD, EPOLLIN, clients_.back().get());
  }

  // Everything that has come is answered by one send(): batches make themselves, as the shared
  // client's groups do.
  // @return false if the client has gone, or lies
  bool answer(Socket &client) {
    try {
      if (client.out.empty() && !client.receive())
        return false;
      std::span<const std::byte> left = client.in;
      while (const auto request = take_message(left)) {
        std::array<std::byte, longest> response;
        const size_t length = std::min(::serve(*request, response), response.size());
        std::ranges::copy(std::span(response).first(length),
                          add_message(client.out, length).begin());
      }
      client.used(client.in.size() - left.size());
      const bool is_sent = client.out.empty() || client.send();
      if (is_sent == std::exchange(client.waits_for_room, !is_sent))
        watch(client.fd(), EPOLL_CTL_MOD, is_sent ? EPOLLIN : EPOLLOUT, &client);
      return true;
    } catch (const std::exception &error) {
      std::fprintf(stderr, "a client: %s\n", error.what());
      return false;
    }
  }

  File listener_, epoll_;
  std::vector<std::unique_ptr<Socket>> clients_;
};

Socket connect_to(const std::string &host, uint16_t port) {
  const addrinfo hints{.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  addrinfo *found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
    throw Error(host, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> holder(found, freeaddrinfo);
  Socket made(check_errno(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  check_errno(connect(made.fd(), found->ai_addr, found->ai_addrlen), "connect");
  return made;
}

// Keeps `in_flight` requests under way, and sends all that it may with one send().
void send_requests(Socket &server, const ProcessLoad &load, Looks &looks, Progress &progress) {
  uint32_t sent = 0, received = 0;
  Bytes request(load.size);
  const auto receive = [&](bool may_sleep) {
    if (!server.receive(may_sleep))
      throw Error("the server", "it is gone");
    return !server.in.empty();
  };
  while (received < load.requests) {
    for (; sent < load.requests && sent - received < load.in_flight; ++sent) {
      progress.sends(sent);
      make_request(add_message(server.out, load.size), load.size, 0, sent);
    }
    while (!server.out.empty())
      server.send();
    if (!looks.find([&] { return receive(false); }))
      receive(true);
    std::span<const std::byte> left = server.in;
    while (const auto response = take_message(left)) {
      progress.received(received);
      make_request(request, load.size, 0, received++); // responses come in the requests' order
      if (!is_response(*response, request))
        throw Error("a response", "it is not to this request");
    }
    server.used(server.in.size() - left.size());
  }
}

void tcp_requests(int argc, char **argv) {
  CommandLine line{
      "Processes that send requests by TCP, each by a socket of its own; and the server."};
  ProcessLoad load;
  std::string host;
  uint16_t port = 18515;
  uint32_t connections = 4;
  std::chrono::seconds wait{60}, timeout{5};
  line.add("--host", host, "the server; without it, be the server");
  line.add("--tcp-port", port, "where it listens; 0: any [18515]");
  line.add("--connections", connections, "the server ends after so many [4]", 1, 1'000'000);
  line.add("--wait", wait, "how long the server waits for something to come");
  line.add("--timeout", timeout, "how long a response may take");
  Looks looks{line};
  load.parse(line, argc, argv);
  if (host.empty())
    return TcpServer(port).serve(connections, wait, looks);
  run_processes(load, [&](uint32_t, Progress &progress) {
    Socket server = connect_to(host, port);
    server.set_limit(timeout);
    progress.ready();
    send_requests(server, load, looks, progress);
    progress.done();
  });
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, tcp_requests);
}

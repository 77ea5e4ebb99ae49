// SPDX-License-Identifier: MIT
#include "rdmacommon/exchange.hpp"

#include "hints.hpp"
#include "rdmacommon/device.hpp"
#include "rdmacommon/processes.hpp"
#include "resolve.hpp"
#include "wait_for.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

namespace rdmacommon {
namespace {

using std::chrono::milliseconds;

std::string seconds_text(milliseconds time) {
  return std::to_string(time.count() / 1000) + " s";
}

/// Connects within the deadline. @return 0 or the error number
int connect_to(const addrinfo &address, Clock::time_point deadline, int socket) {
  if (connect(socket, address.ai_addr, address.ai_addrlen) == 0)
    return 0;
  if (errno != EINPROGRESS)
    return errno;
  if (!wait_for(socket, POLLOUT, deadline))
    return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  check_errno(getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size), "getsockopt(SO_ERROR)");
  return error;
}

int connect_to_server(const PairOptions &options, Where where) {
  const std::string peer = options.host + " TCP port " + std::to_string(options.tcp_port);
  const Clock::time_point deadline = Clock::now() + options.timeout;
  const unique_addrinfo addresses = resolve(options.host, options.tcp_port, AF_UNSPEC, 0, where);
  int error = 0;
  for (bool said = false;;) {
    for (const addrinfo *address = addresses.get(); address; address = address->ai_next) {
      File client(
          check_errno(socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                      "socket", where));
      const int result = connect_to(*address, deadline, client.get());
      if (result == 0)
        return client.release();
      if (result != ETIMEDOUT || error == 0) // the last attempt may have no time left
        error = result;
    }
    if (error != ECONNREFUSED || Clock::now() >= deadline)
      break;
    if (!said)
      std::printf("no server at %s yet; trying for %s\n", peer.c_str(),
                  seconds_text(options.timeout).c_str());
    said = true;
    // Nothing tells a client that a server has begun to listen elsewhere, so this one wait is a
    // pause.
    poll(nullptr, 0, static_cast<int>(std::min(milliseconds(50), time_left(deadline)).count()));
  }
  throw_errno(error, ("connect to " + peer).c_str(), where);
}

/// A listening socket for IPv6 and IPv4, or, where this host has no IPv6, for IPv4 alone.
int listen_on(uint16_t port, Where where) {
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    const int on = 1, off = 0;
    File server(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (server.get() >= 0) {
      const unique_addrinfo any = resolve("", port, family, AI_PASSIVE, where);
      setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (family == AF_INET6)
        setsockopt(server.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (bind(server.get(), any->ai_addr, any->ai_addrlen) == 0 &&
          listen(server.get(), SOMAXCONN) == 0)
        return server.release();
    }
    error = errno;
    if (error == EADDRINUSE)
      break;
  }
  throw_errno(error, ("listen on TCP port " + std::to_string(port)).c_str(), where);
}

uint16_t port_of(int server) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  check_errno(getsockname(server, reinterpret_cast<sockaddr *>(&address), &size), "getsockname");
  // sin_port and sin6_port have the same place.
  return ntohs(reinterpret_cast<const sockaddr_in &>(address).sin_port);
}

/// The peer's text, quoted for a message: no control sequence in it may reach the terminal.
std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char letter : text)
    if (letter >= ' ' && letter <= '~') {
      result += letter;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(letter));
      result += escaped;
    }
  return result + "'";
}

constexpr const char *stock_mtu = ":1024"; // the default of the stock tools, which do not send it
constexpr size_t mtu_length = 4;
constexpr size_t stock_length = 4 + 1 + 6 + 1 + 6 + 1 + 32;
constexpr size_t endpoint_length = stock_length + 1 + mtu_length;

[[noreturn]] void refuse(const std::string &reason, Where where) {
  throw Error("the peer's address", reason, hint_for_other_program(), where);
}

/// One field of the line: exactly `digits` hexadecimal digits.
uint64_t parse_hex(std::string_view text, size_t digits, const char *name, Where where) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != digits || error != std::errc() || end != text.data() + text.size())
    refuse(std::string(name) + " is " + in_quotes(text) + ", not " + std::to_string(digits) +
               " hexadecimal digits",
           where);
  return value;
}

std::string mtu_text(ibv_mtu mtu) {
  const std::string bytes = std::to_string(mtu_bytes(mtu));
  return std::string(mtu_length - bytes.size(), '0') + bytes;
}

ibv_mtu parse_mtu(std::string_view text, Where where) {
  for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096})
    if (text == mtu_text(mtu))
      return mtu;
  refuse("MTU is " + in_quotes(text) + ", not 0256, 0512, 1024, 2048 or 4096", where);
}

/// The fields between colons, of which there must be `count`.
template <size_t count>
std::array<std::string_view, count> split(std::string_view line, const char *form, Where where) {
  std::array<std::string_view, count> field;
  for (size_t i = 0; i < count; ++i) {
    const size_t colon = line.find(':');
    if ((colon == line.npos) != (i == count - 1))
      refuse(in_quotes(line) + " is not the rest of " + form, where);
    field[i] = line.substr(0, colon);
    line.remove_prefix(colon == line.npos ? line.size() : colon + 1);
  }
  return field;
}

constexpr std::string_view done = "done";
constexpr size_t memory_length = 16 + 1 + 8 + 1 + 16;

} // namespace

std::string to_line(const Endpoint &endpoint) {
  char text[stock_length + 1];
  int length =
      std::snprintf(text, sizeof text, "%04x:%06x:%06x:", endpoint.lid, endpoint.qpn, endpoint.psn);
  for (const uint8_t byte : endpoint.gid.raw)
    length += std::snprintf(text + length, sizeof text - length, "%02x", byte);
  return text + (":" + mtu_text(endpoint.mtu));
}

Endpoint parse_endpoint(std::string_view line, Where where) {
  const std::string with_mtu = std::count(line.begin(), line.end(), ':') == 3
                                   ? std::string(line) + stock_mtu
                                   : std::string(line);
  const auto [lid, qpn, psn, gid, mtu] = split<5>(with_mtu, "LID:QPN:PSN:GID:MTU", where);
  Endpoint endpoint{.lid = static_cast<uint16_t>(parse_hex(lid, 4, "LID", where)),
                    .qpn = static_cast<uint32_t>(parse_hex(qpn, 6, "QPN", where)),
                    .psn = static_cast<uint32_t>(parse_hex(psn, 6, "PSN", where)),
                    .gid = {},
                    .mtu = parse_mtu(mtu, where)};
  if (gid.size() != 2 * sizeof endpoint.gid.raw)
    parse_hex(gid, 2 * sizeof endpoint.gid.raw, "GID", where);
  for (size_t i = 0; i < sizeof endpoint.gid.raw; ++i)
    endpoint.gid.raw[i] = static_cast<uint8_t>(parse_hex(gid.substr(2 * i, 2), 2, "GID", where));
  return endpoint;
}

RemoteMemory share(const ibv_mr *mr) {
  return {.address = reinterpret_cast<uintptr_t>(mr->addr), .rkey = mr->rkey, .length = mr->length};
}

std::string to_line(const RemoteMemory &memory) {
  char text[memory_length + 1];
  std::snprintf(text, sizeof text, "%016" PRIx64 ":%08x:%016" PRIx64, memory.address, memory.rkey,
                memory.length);
  return text;
}

RemoteMemory parse_remote_memory(std::string_view text, Where where) {
  const auto [address, rkey, length] = split<3>(text, "ADDRESS:RKEY:LENGTH", where);
  const RemoteMemory memory{.address = parse_hex(address, 16, "ADDRESS", where),
                            .rkey = static_cast<uint32_t>(parse_hex(rkey, 8, "RKEY", where)),
                            .length = parse_hex(length, 16, "LENGTH", where)};
  if (memory.address + memory.length < memory.address)
    refuse("its memory ends past the last address that there is", where);
  return memory;
}

uint32_t random_psn() {
  return std::random_device{}() & 0xffffff;
}

Exchange::Exchange(const PairOptions &options, Where where)
    : Exchange(options.is_server() ? Listener(options, where).accept(where)
                                   : Exchange(connect_to_server(options, where), options.timeout)) {
}

Exchange::~Exchange() {
  if (socket_ >= 0)
    close(socket_);
}

Exchange::Exchange(Exchange &&other) noexcept
    : socket_(std::exchange(other.socket_, -1)), timeout_(other.timeout_),
      unread_(std::move(other.unread_)), peer_is_stock_(other.peer_is_stock_) {}

void Exchange::send(const Endpoint &endpoint, Where where) {
  send_message(to_line(endpoint).substr(0, peer_is_stock_ ? stock_length : endpoint_length), where);
}

Endpoint Exchange::receive(Where where) {
  const std::string line = receive_message(endpoint_length, "the peer's address", timeout_, where);
  peer_is_stock_ = line.size() == stock_length;
  return parse_endpoint(line, where);
}

void Exchange::send(const Endpoint &endpoint, const RemoteMemory &memory, Where where) {
  send_message(to_line(endpoint) + ":" + to_line(memory), where);
}

Endpoint Exchange::receive(RemoteMemory &memory, Where where) {
  const std::string line = receive_message(endpoint_length + 1 + memory_length,
                                           "the peer's address and memory", timeout_, where);
  const std::string_view text = line;
  if (text.size() <= endpoint_length || text[endpoint_length] != ':')
    refuse(in_quotes(text) + " is not LID:QPN:PSN:GID:MTU:ADDRESS:RKEY:LENGTH", where);
  memory = parse_remote_memory(text.substr(endpoint_length + 1), where);
  return parse_endpoint(text.substr(0, endpoint_length), where);
}

void Exchange::send_done(Where where) {
  send_message(done, where);
}

void Exchange::receive_done(Where where) {
  receive_done(timeout_, where);
}

void Exchange::receive_done(milliseconds limit, Where where) {
  const std::string text = receive_message(done.size(), "the peer's 'done'", limit, where);
  if (text != done)
    throw Error("the peer's 'done'", "it sent " + in_quotes(text), hint_for_other_program(), where);
}

bool Exchange::can_receive(Where where) const {
  pollfd what{.fd = socket_, .events = POLLIN};
  return !unread_.empty() || check_errno(poll(&what, 1, 0), "poll", where) > 0;
}

void Exchange::finish(Where where) {
  shutdown(socket_, SHUT_WR);
  const milliseconds limit = 2 * timeout_;
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    if (!wait_for(socket_, POLLIN, deadline))
      throw Error("wait for the peer to finish", "it did not within " + seconds_text(limit), "",
                  where);
    char rest[64];
    const ssize_t got = recv(socket_, rest, sizeof rest, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) // a reset: it went without reading all
      return;
    if (got < 0 && errno != EAGAIN && errno != EINTR)
      throw_errno(errno, "recv", where);
  }
}

void Exchange::send_message(std::string_view text, Where where) {
  // In one piece with its zero byte: ibv_rc_pingpong reads a message with a single read().
  const std::string message(text.data(), text.size());
  const ssize_t sent = ::send(socket_, message.c_str(), message.size() + 1, MSG_NOSIGNAL);
  check_errno(static_cast<int>(sent), "send to the peer", where);
}

std::string Exchange::receive_message(size_t length, const char *what, milliseconds limit,
                                      Where where) {
  const auto fail = [what, where](const std::string &reason) {
    throw Error(what, reason, hint_for_other_program(), where);
  };
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    const size_t end = unread_.find_first_of(std::string_view("\0\n", 2));
    if (std::min(end, unread_.size()) > length)
      fail("the peer sent more than the " + std::to_string(length) + " bytes expected");
    if (end != unread_.npos) {
      const std::string text = unread_.substr(0, end);
      unread_.erase(0, end + 1); // the next message may have come along
      return text;
    }
    if (!wait_for(socket_, POLLIN, deadline))
      fail("only " + std::to_string(unread_.size()) + " of " + std::to_string(length) +
           " bytes came within " + seconds_text(limit));
    char buffer[256];
    const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
    if (got == 0 && unread_.empty())
      throw Error(what, "the peer closed the connection before it came",
                  hint("the peer has ended: its own last lines say why", "peer-ended"), where);
    if (got == 0)
      fail("the peer closed the connection after " + std::to_string(unread_.size()) + " of " +
           std::to_string(length) + " bytes");
    unread_.append(buffer, static_cast<size_t>(check_errno(static_cast<int>(got), "recv", where)));
  }
}

Listener::Listener(const PairOptions &options, Where where)
    : socket_(listen_on(options.tcp_port, where)), wait_(options.wait), timeout_(options.timeout) {
  std::printf("listening on TCP port %u\n", port_of(socket_));
}

Listener::~Listener() {
  close(socket_);
}

Exchange Listener::accept(Where where) {
  const Clock::time_point deadline = Clock::now() + wait_;
  for (;;) {
    if (!wait_for(socket_, POLLIN, deadline))
      throw Error("wait for a client", "none came within " + seconds_text(wait_),
                  hint("start the client with --host", "no-client"), where);
    const int client = accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client >= 0)
      return {client, timeout_};
    if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) // it came and went
      throw_errno(errno, "accept", where);
  }
}

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// The messages by which two programs tell each other their addresses: without them, one would not
// see why a QP goes to RTR when it does. Only TCP's; "tcp" is "from>to" as the caller sees it,
// "bytes" how much.

#include "tcp.hpp"

#include "event.hpp"
#include "names.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trace {
namespace {

constexpr std::size_t shown = 100; // bytes of a message

// libc declares its functions with attributes that would have to be repeated.
template <typename Function> Function *libc(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

// One end of a socket; "" if there is none, or if it is not TCP.
template <typename Get> std::string end_of(int socket, Get get) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto *found = reinterpret_cast<sockaddr *>(&storage);
  int type = 0;
  socklen_t type_size = sizeof type;
  if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &type_size) || type != SOCK_STREAM ||
      get(socket, found, &size) || (storage.ss_family != AF_INET && storage.ss_family != AF_INET6))
    return "";
  std::string text = address(found);
  if (const auto mapped = text.find("::ffff:"); mapped == 1) // an IPv4 peer of an IPv6 socket
    text = text.substr(8, text.find(']') - 8) + text.substr(text.find(']') + 1);
  return text;
}

// The same, and the caller does not notice.
template <typename Get> std::string end(int socket, Get get) {
  std::string text;
  quietly([&] { text = end_of(socket, get); });
  return text;
}

std::string words(const void *data, ssize_t length) {
  std::string text(static_cast<const char *>(data),
                   std::min(static_cast<std::size_t>(length), shown));
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n'))
    text.pop_back();
  if (text.empty() ||
      !std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; }))
    return print("%zd B", length);
  return '"' + text + '"';
}

template <typename Transfer>
ssize_t message(const char *call, int socket, const void *data, bool receives, Transfer transfer) {
  if (!on())
    return transfer();
  const std::string here = end(socket, getsockname),
                    there = here.empty() ? "" : end(socket, getpeername);
  if (there.empty())
    return transfer();
  Event event(call);
  const ssize_t length = transfer();
  event.minus_one(length < 0 ? -1 : 0);
  if (length <= 0)
    event.forget();
  else {
    event.text([&] { return words(data, length); });
    event.json([&](Json &json) {
      json.string("tcp", receives ? there + ">" + here : here + ">" + there)
          .number("bytes", static_cast<std::uint64_t>(length))
          .flag("receives", receives);
    });
  }
  return length;
}

} // namespace

void announce_listening() {
  static const bool wanted = std::getenv("VERBS_TRACE_ANNOUNCE") != nullptr;
  static std::atomic<bool> done{false};
  constexpr std::string_view line = "verbs-trace: listening\n";
  if (wanted && !done.exchange(true))
    syscall(SYS_write, STDERR_FILENO, line.data(), line.size());
}

} // namespace trace

using namespace trace;

extern "C" {

int listen(int socket, int backlog) noexcept {
  static const auto real = libc<int(int, int)>("listen");
  Event event("listen");
  const int status = event.minus_one(real(socket, backlog));
  event.note([&] {
    const std::string where = end(socket, getsockname); // only now it surely has a port
    event.text([&] { return where; });
    if (where.empty())
      event.forget();
    else if (!status)
      announce_listening();
  });
  return status;
}

ssize_t send(int socket, const void *data, std::size_t length, int flags) {
  static const auto real = libc<ssize_t(int, const void *, std::size_t, int)>("send");
  return message("send", socket, data, false, [&] { return real(socket, data, length, flags); });
}

ssize_t write(int file, const void *data, std::size_t length) {
  static const auto real = libc<ssize_t(int, const void *, std::size_t)>("write");
  return message("write", file, data, false, [&] { return real(file, data, length); });
}

ssize_t recv(int socket, void *data, std::size_t length, int flags) {
  static const auto real = libc<ssize_t(int, void *, std::size_t, int)>("recv");
  return message("recv", socket, data, true, [&] { return real(socket, data, length, flags); });
}

ssize_t read(int file, void *data, std::size_t length) {
  static const auto real = libc<ssize_t(int, void *, std::size_t)>("read");
  return message("read", file, data, true, [&] { return real(file, data, length); });
}

} // extern "C"

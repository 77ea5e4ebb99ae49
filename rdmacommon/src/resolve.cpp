// SPDX-License-Identifier: MIT
#include "resolve.hpp"

#include "hints.hpp"

#include <resolv.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace rdmacommon {

unique_addrinfo resolve(const std::string &host, uint16_t port, int family, int flags,
                        Where where) {
  // A name server that does not answer would hold getaddrinfo() for 10 s and more.
  res_init();
  _res.retrans = 1;
  _res.retry = 2;
  addrinfo wanted{};
  wanted.ai_flags = flags | AI_NUMERICSERV;
  wanted.ai_family = family;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo *found = nullptr;
  const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                             &wanted, &found);
  if (rc != 0)
    throw Error("--host " + host, rc == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(rc),
                hint("give the server's name or address", "unknown-host"), where);
  return unique_addrinfo(found, freeaddrinfo);
}

} // namespace rdmacommon

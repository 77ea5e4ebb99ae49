// SPDX-License-Identifier: MIT
// Internal: the addresses behind a host's name.
#pragma once

#include "rdmacommon/check.hpp"

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <string>

namespace rdmacommon {

// The list that getaddrinfo(3) makes; freeaddrinfo(3) frees it.
using unique_addrinfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// @param host   name or address; empty: any (with AI_PASSIVE), or this host
// @param family AF_UNSPEC, AF_INET or AF_INET6
// @param flags  AI_*, for getaddrinfo(3)
// @throws Error if there is no such host
unique_addrinfo resolve(const std::string &host, uint16_t port, int family, int flags,
                        Where where = Where::here());

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// What both sides of a RingHost's socket need: its name, what is said over it, and who is at the
// other end.
#pragma once

#include "rdmacommon/processes.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <optional>
#include <string>
#include <string_view>

namespace rdmacommon {

// Said by the guest, and by the host, which goes on with the guest's number, and then with the
// numbers of rings and doorbells.
inline constexpr std::string_view ring_hello = "slot ring 1", ring_answer = "slot ring 1 worker ",
                                  ring_count = " rings ", doorbell_count = " doorbells ";
// Said by a guest that has unmapped the rings.
inline constexpr std::string_view ring_goodbye = "slot ring 1 goodbye";

// A name that is in no file system: it is there as long as the socket is.
// @throws Error if it is empty or too long
socklen_t abstract_address(sockaddr_un &address, const std::string &name, Where where);

File unix_socket(int flags);

// Nothing protects an abstract name: the kernel says who is on the other end.
ucred peer_of(int socket);
bool is_of_group(int socket, gid_t group);

} // namespace rdmacommon

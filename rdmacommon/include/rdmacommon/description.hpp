// SPDX-License-Identifier: MIT
/// @file
/// The messages of lessons 12_cm_connect, 13_cm_many_clients and 31_kernel_client. Client and
/// server exchange them by RDMA itself, where the lessons before needed a TCP connection. All of
/// them are in network byte order on the wire:
///
///     client                                          server
///       |  REQ, with a Greeting as private data  --->   |
///       |  <---  REP, with a Greeting  (or REJ, with one that says why)
///       |  RTU                                   --->   |
///       |  SEND of a Description                 --->   |
///       |  <---                 SEND of a Description   |
///
/// Introduced in lesson 12_cm_connect.
#pragma once

#include "rdmacommon/exchange.hpp"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace rdmacommon {

/// The version of the protocol that this library speaks.
constexpr uint16_t protocol_version = 1;

/// The reason why a server rejects a client.
enum class Refusal : uint16_t {
  none = 0,    ///< The server accepts it.
  version = 1, ///< The client speaks another version, or another protocol.
  full = 2,    ///< The server has as many clients as it takes.
  closing = 3, ///< The server is about to end.
};

/// The private data of a connection request, of its answer, and of a rejection: 8 bytes of the 56
/// that rdma_cm leaves for a request. It comes in a longer field, filled up with zeros.
///
///     const rdmacommon::Greeting hello = rdmacommon::greeting();
///     rdma_conn_param ask{.private_data = &hello, .private_data_len = sizeof hello};
///     rdmacommon::check_errno(rdma_connect(id, &ask), "rdma_connect");
///     // at the server
///     const auto came = rdmacommon::greeting_in(event->param.conn);
///     if (!came || came->version != rdmacommon::protocol_version)
///       rdmacommon::check_errno(rdma_reject(event->id, nullptr, 0), "rdma_reject");
struct Greeting {
  uint32_t magic;   ///< "RBEX": whose protocol it is.
  uint16_t version; ///< The sender's protocol_version.
  uint16_t refusal; ///< A Refusal.
};

/// A Greeting of ours, in network byte order.
/// @param version another than ours only to see what the other side makes of it
Greeting greeting(Refusal refusal = Refusal::none, uint16_t version = protocol_version);

/// The Greeting in the private data that came with an event, in host byte order.
/// @return nothing if there is none; its version and refusal are for the caller to check
std::optional<Greeting> greeting_in(const rdma_conn_param &came);

/// The words for a refusal: "it has as many clients as it takes".
/// @return a literal
const char *words_for(Refusal refusal);

/// A message of 24 bytes that describes the memory that the other side may use.
///
///     const rdmacommon::Description ours = rdmacommon::describe(mr); // the bytes to SEND
///     const auto theirs = rdmacommon::parse_description(received, wc.byte_len);
struct Description {
  uint32_t version; ///< protocol_version
  uint32_t rkey;    ///< The key of the region.
  uint64_t address; ///< The beginning of the memory, as its owner counts.
  uint64_t length;  ///< Bytes.
};
static_assert(sizeof(Description) == 24);

/// The Description of all of a region, in network byte order.
Description describe(const ibv_mr *mr);

/// The reverse, of what the other side has sent.
/// @param received its length in bytes, as the completion of the receive says
/// @throws Error if it has another length or version, or names no memory that there can be
RemoteMemory parse_description(const Description &message, size_t received,
                               Where where = Where::here());

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
/// @file
/// The connection manager, librdmacm: owning handles for what it makes, and its events one at a
/// time.
///
/// Whatever rdma_cm does, it reports by an event on a channel, which is a file descriptor. Each
/// event has to be acknowledged; rdma_destroy_id() waits until all events of its id are. A
/// unique_cm_event does so when it goes, so it must go before the id does: declare it later, or in
/// a block of its own. (A CONNECT_REQUEST counts for the listener, not for the id that it brings.)
///
/// Written out in lesson 12_cm_connect; see also rdma_cm(7), rdma_get_cm_event(3).
#pragma once

#include "rdmacommon/check.hpp"
#include "rdmacommon/handles.hpp"
#include "rdmacommon/options.hpp"

#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace rdmacommon {

namespace deleters {
/// @cond each is the one call that its name says
struct DestroyEventChannel {
  void operator()(rdma_event_channel *channel) const noexcept {
    rdma_destroy_event_channel(channel);
  }
};
struct DestroyCmId {
  void operator()(rdma_cm_id *id) const noexcept { report(rdma_destroy_id(id), "rdma_destroy_id"); }
};
struct DestroyCmQp {
  void operator()(rdma_cm_id *id) const noexcept { rdma_destroy_qp(id); }
};
struct AckCmEvent {
  void operator()(rdma_cm_event *event) const noexcept {
    report(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  }
};
/// @endcond
} // namespace deleters

/// An event channel, from rdma_create_event_channel(). Outlives the ids that report to it.
using unique_event_channel = std::unique_ptr<rdma_event_channel, deleters::DestroyEventChannel>;
/// A communication identifier, from rdma_create_id() or with a connection request: what a socket is
/// to TCP. Destroying it ends the connection.
using unique_cm_id = std::unique_ptr<rdma_cm_id, deleters::DestroyCmId>;
/// The queue pair of an id, from rdma_create_qp(). Holds the id, which outlives it; `id->qp` is the
/// queue pair.
using unique_cm_qp = std::unique_ptr<rdma_cm_id, deleters::DestroyCmQp>;
/// An event, from take_cm_event(). Acknowledged when it goes, and its private data go with it.
using unique_cm_event = std::unique_ptr<rdma_cm_event, deleters::AckCmEvent>;

/// An address as rdma_cm takes it, IPv4 or IPv6, with a port.
///
///     rdmacommon::CmAddress server = rdmacommon::cm_address("10.77.0.1", 18515);
///     rdmacommon::check_errno(rdma_resolve_addr(id, nullptr, server.get(), 2000),
///                             "rdma_resolve_addr");
struct CmAddress {
  sockaddr_storage storage; ///< The address, in network byte order.
  sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); } ///< Belongs to this object.
};

/// The address of the options: a server listens on it, or a client connects to it. Of a name with
/// several addresses it is the first. For a server without `--host` it is "::", on which rdma_cm
/// takes IPv4 clients as well.
/// @throws Error if there is no such host
CmAddress cm_address(const CmOptions &options, Where where = Where::here());

/// The address of a host and a port that the caller gives.
/// @param host empty: "::", to listen on
/// @throws Error if there is no such host
CmAddress cm_address(const std::string &host, uint16_t port, Where where = Where::here());

/// An event channel that does not block. Its `fd` is readable when there is an event, for poll(2)
/// and epoll(7).
/// @throws Error if this kernel has no rdma_cm
unique_event_channel create_event_channel(Where where = Where::here());

/// The next event of the channel, without waiting. To be called by one thread at a time.
/// @param channel one that does not block, as create_event_channel() makes it; outlives the event
/// @return null if there is none now
/// @throws Error if the channel cannot be read, or the change that the event stands for failed in
///         the library
unique_cm_event take_cm_event(rdma_event_channel *channel, Where where = Where::here());

/// Sleeps until an event comes, whichever it is.
/// @param wanted  the expected event, for the error message
/// @param timeout how long. The kernel's own limit for a connection request is more than a minute
/// @throws Error if none comes in time
unique_cm_event next_cm_event(rdma_event_channel *channel, rdma_cm_event_type wanted,
                              std::chrono::milliseconds timeout, Where where = Where::here());

/// Throws unless `event` is the one that is wanted. The message names the event that came instead,
/// its status in words (an error number, or for REJECTED the reason that the InfiniBand CM gives),
/// and a hint.
void check_cm_event(const rdma_cm_event &event, rdma_cm_event_type wanted,
                    Where where = Where::here());

/// Sleeps until the next event comes, and throws unless it is the wanted one.
unique_cm_event wait_for_cm_event(rdma_event_channel *channel, rdma_cm_event_type wanted,
                                  std::chrono::milliseconds timeout, Where where = Where::here());

/// An id for a reliable connection, which has no device yet. Its events come on `channel`, which
/// outlives it.
/// @throws Error if the kernel has no room for it
unique_cm_id create_cm_id(rdma_event_channel *channel, Where where = Where::here());

/// Listens where the options say, and prints "listening on rdma_cm port N".
/// @param backlog how many requests may wait for the program; those over it the kernel rejects,
///                without a reason
/// @return the listener; each request brings an id of its own
/// @throws Error if that port is taken, or that address is not this host's
unique_cm_id cm_listen(rdma_event_channel *channel, const CmOptions &options, int backlog,
                       Where where = Where::here());

/// Listens on an address, and prints nothing. rdma_get_src_port() of the listener has the port.
unique_cm_id cm_listen(rdma_event_channel *channel, CmAddress &address, int backlog,
                       Where where = Where::here());

/// Finds the device, port and route to the server that the options name. After it, `id->verbs` is
/// the device.
/// @param id of create_cm_id(), on `channel`, where no other events are due
/// @throws Error if one of the two steps fails, or takes longer than options.timeout
void cm_resolve(rdma_cm_id *id, rdma_event_channel *channel, const CmOptions &options,
                Where where = Where::here());

/// Creates the id's queue pair: reliable-connection, in state INIT, whose SENDs complete only when
/// they ask to.
/// @param id  after cm_resolve(), or of a request; outlives the QP
/// @param pd  the protection domain; outlives the QP
/// @param cq  receives the completions of both queues; outlives the QP
/// @param cap how many requests and SGEs each queue holds
/// @throws Error if a capacity is over the device's limits
unique_cm_qp create_cm_qp(rdma_cm_id *id, ibv_pd *pd, ibv_cq *cq, const ibv_qp_cap &cap,
                          Where where = Where::here());

/// The event's name without its prefix: "ESTABLISHED".
/// @return a literal
const char *name_of(rdma_cm_event_type event);

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
/// @file
/// An open device with a port and a GID chosen: what every example starts from.
///
/// Written out in lesson 01_hello_device.
#pragma once

#include "rdmacommon/handles.hpp"
#include "rdmacommon/options.hpp"

#include <infiniband/verbs.h>

#include <string>

namespace rdmacommon {

/// One port of an open device, and the GID by which peers know it.
///
///     const rdmacommon::Port port = rdmacommon::open_port(options);
///     const rdmacommon::unique_pd pd = rdmacommon::alloc_pd(port.context.get());
struct Port {
  unique_context context; ///< The open device; destroyed last, so declare a Port before the rest.
  uint8_t number;         ///< Counted from 1, as ibv_query_port() and ibv_qp_attr::port_num do.
  ibv_port_attr attr;     ///< The answer of ibv_query_port(); ignore attr.lid on RoCE.
  ibv_gid_entry gid;      ///< The chosen entry of the GID table. The GID is in network byte order.
  ibv_mtu mtu;            ///< The largest path MTU for a QP: attr.active_mtu, or less if asked for.
  /// The traffic class of outgoing packets' GRH: on RoCEv2 the IP header's DSCP and ECN.
  uint8_t traffic_class;

  std::string device_name() const; ///< "rxe0"
  bool is_roce() const;            ///< Ethernet below: addresses are GIDs. Otherwise they are LIDs.
};

/// Opens a device and chooses the port and the GID that the options ask for, or good ones.
///
/// Among all active ports of all devices it takes the one with the best GID, as gid_score() ranks
/// them: on RoCE the RoCEv2 entry with an IPv4 address, else one with a routable IPv6 address, else
/// a link-local one; on InfiniBand index 0. Of equally good ports it takes the first.
/// @throws Error if there is no such device, port or GID index; the message lists the existing ones
Port open_port(const DeviceOptions &options);

/// Checks that a device has atomics. Both sides need them: the client's NIC sends an atomic, and
/// the server's NIC executes it. Lesson 07_atomics; ibv_query_device(3), `atomic_cap`.
/// @throws Unsupported if it has none
void require_atomics(ibv_context *context);

/// A score of how well a GID reaches a peer: higher is better, and 0 is no use.
/// @param entry as ibv_query_gid_ex() filled it in
int gid_score(const ibv_gid_entry &entry);

/// A GID as text: "::ffff:10.77.0.1", "fe80::1". Every GID has the form of an IPv6 address.
std::string to_text(const ibv_gid &gid);

/// The largest payload of one packet in bytes: 256, 512, 1024, 2048 or 4096.
int mtu_bytes(ibv_mtu mtu);

} // namespace rdmacommon

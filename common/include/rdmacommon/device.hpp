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
struct Port {
  unique_context context; ///< The open device; destroyed last, so declare a Port before the rest.
  uint8_t number;         ///< Counted from 1, as ibv_query_port() and ibv_qp_attr::port_num do.
  ibv_port_attr attr;     ///< As ibv_query_port() filled it in; attr.lid is 0 on RoCE.
  ibv_gid_entry gid;      ///< The chosen entry of the GID table. The GID is in network byte order.

  std::string device_name() const; ///< "rxe0"
  bool is_roce() const;            ///< Ethernet below: addresses are GIDs. Otherwise they are LIDs.
};

/// Opens a device and chooses the port and the GID that the options ask for, or good ones.
///
/// Device and port: the first with an active port. GID: on RoCE the RoCEv2 entry with an IPv4
/// address, else one with a routable IPv6 address, else a link-local one; on InfiniBand index 0.
/// @throws Error if there is no such device, port or GID index; the message lists those there are
Port open_port(const DeviceOptions &options);

/// How good a GID is for reaching a peer: higher is better, 0 is no use.
/// @param entry as ibv_query_gid_ex() filled it in
int gid_score(const ibv_gid_entry &entry);

/// A GID as text: "::ffff:10.77.0.1", "fe80::1". Every GID has the form of an IPv6 address.
std::string to_text(const ibv_gid &gid);

/// The largest payload of one packet in bytes: 256, 512, 1024, 2048 or 4096.
int mtu_bytes(ibv_mtu mtu);

} // namespace rdmacommon

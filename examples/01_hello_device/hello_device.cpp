// SPDX-License-Identifier: MIT
// 01_hello_device: which RDMA devices are here, how peers reach them, and what they can do.
//
// Lesson:  lessons/01_hello_device.md
// Needs:   an RDMA device (./lab doctor says where yours comes from)
// Run:     ./lab run 01_hello_device
//
// Verbs in order: ibv_get_device_list, ibv_open_device, ibv_query_device_ex, ibv_query_port,
// ibv_query_gid_ex, ibv_close_device.

#include <rdmacommon/check.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/options.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <cstdio>
#include <cstring>
#include <string>

using namespace rdmacommon;

namespace {

// [gid-kind]
struct GidKind {
  int score; // the higher, the better it reaches a peer; 0: not at all
  const char *text;
};

// A GID has the form of an IPv6 address, and its type says how packets to it look.
GidKind kind_of(const ibv_gid_entry &entry, const char *network) {
  if (entry.gid_type == IBV_GID_TYPE_IB) // not only on InfiniBand: iWARP and EFA report it as well
    return {entry.gid_index == 0 ? 2 : 1, network};
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V1)
    return {0, "RoCEv1: Ethernet only, no routing"};
  in6_addr address;
  std::memcpy(&address, entry.gid.raw, sizeof address);
  if (IN6_IS_ADDR_V4MAPPED(&address))
    return {3, "RoCEv2 over IPv4"};
  if (IN6_IS_ADDR_LINKLOCAL(&address))
    return {1, "RoCEv2, link-local: works only within one segment"};
  return {2, "RoCEv2 over IPv6"};
}
// [gid-kind]

// [gid-table]
// Prints a port's GIDs and returns the index of the best one, or -1.
int show_gids(ibv_context *context, uint8_t port, int table_length, const char *network) {
  int best_index = -1, best_score = 0;
  for (int index = 0; index < table_length; ++index) {
    ibv_gid_entry entry{};
    const int rc = ibv_query_gid_ex(context, port, static_cast<uint32_t>(index), &entry, 0);
    if (rc == ENODATA) // An empty entry is no error: the table has holes as addresses come and go.
      continue;
    check_rc(rc, "ibv_query_gid_ex");
    char address[INET6_ADDRSTRLEN];
    check_ptr(inet_ntop(AF_INET6, entry.gid.raw, address, sizeof address), "inet_ntop");
    const GidKind kind = kind_of(entry, network);
    std::printf("    GID %-3d %-28s %s\n", index, address, kind.text);
    if (kind.score > best_score) {
      best_score = kind.score;
      best_index = index;
    }
  }
  return best_index;
}
// [gid-table]

// [port-kind]
struct PortKind {
  const char *network, *address; // kind of network, and of address that peers use
};

// An iWARP port's link layer is Ethernet as well. The LID says nothing: on RoCE it can be 0 or 1.
PortKind kind_of(const ibv_device &device, const ibv_port_attr &port) {
  if (device.transport_type == IBV_TRANSPORT_IWARP)
    return {"Ethernet (iWARP)", "its IP address, with rdma_cm"};
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
    return {"Ethernet (RoCE)", "its GID"};
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
    return {"InfiniBand", "its LID"};
  return {"another network", "its GID"}; // EFA, for example
}
// [port-kind]

// [port]
void show_port(ibv_context *context, uint8_t port) {
  ibv_port_attr attr{};
  check_rc(ibv_query_port(context, port, &attr), "ibv_query_port");
  const PortKind kind = kind_of(*context->device, attr);
  std::printf("  port %d: %s, %s, path MTU %d of at most %d bytes, LID %d\n", port,
              ibv_port_state_str(attr.state), kind.network, 128 << attr.active_mtu,
              128 << attr.max_mtu, attr.lid); // the enum counts powers of 2
  const int best = show_gids(context, port, attr.gid_tbl_len, kind.network);
  if (best < 0)
    std::printf("    no usable GID: give the port's network interface an IP address\n");
  else if (attr.state == IBV_PORT_ACTIVE) {
    std::printf("    -> peers reach this port by %s", kind.address);
    if (context->device->transport_type == IBV_TRANSPORT_IB) // elsewhere no example uses a GID
      std::printf("; examples use GID index %d", best);
    std::printf("\n");
  }
}
// [port]

void row(const char *what, uint64_t value, const char *lesson) {
  std::printf("    %-46s %20llu  %s\n", what, static_cast<unsigned long long>(value), lesson);
}

// [abilities]
void show_abilities(const ibv_device_attr_ex &attr) {
  const ibv_device_attr &base = attr.orig_attr;
  const auto flag = [&](unsigned bit) { return (base.device_cap_flags & bit) != 0; };
  std::printf(
      "  what it can do                                                      limit  lesson\n");
  row("queue pairs", base.max_qp, "02");
  row("work requests in one queue", base.max_qp_wr, "02");
  row("memory regions", base.max_mr, "02");
  row("bytes in one memory region", base.max_mr_size, "02");
  row("completion queues", base.max_cq, "02");
  row("completions in one queue", base.max_cqe, "06");
  row("scatter/gather elements in one request", base.max_sge, "03");
  row("READs and atomics that a QP serves at a time", base.max_qp_rd_atom, "04");
  row("atomics (0 none, 1 this device, 2 whole host)", base.atomic_cap, "07");
  row("multicast groups", base.max_mcast_grp, "14");
  row("shared receive queues", base.max_srq, "09");
  row("memory windows of type 2 (0 no, 1 yes)",
      flag(IBV_DEVICE_MEM_WINDOW_TYPE_2A) || flag(IBV_DEVICE_MEM_WINDOW_TYPE_2B), "10");
  row("bytes of on-chip memory", attr.max_dm_size, "30");
}
// [abilities]

// [device]
void show_device(ibv_device *device) {
  const unique_context context(check_ptr(ibv_open_device(device), "ibv_open_device"));
  ibv_device_attr_ex attr{};
  check_rc(ibv_query_device_ex(context.get(), nullptr, &attr), "ibv_query_device_ex");
  std::printf("%s, firmware %s\n", ibv_get_device_name(device),
              attr.orig_attr.fw_ver[0] ? attr.orig_attr.fw_ver : "none");
  // Ports count from 1. Port 0 would be the management port of a switch.
  for (uint8_t port = 1; port <= attr.orig_attr.phys_port_cnt; ++port)
    show_port(context.get(), port);
  show_abilities(attr);
} // ~unique_context calls ibv_close_device
// [device]

// [list]
void hello_device(int argc, char **argv) {
  CommandLine line{"Lists the RDMA devices, their ports and GIDs, and what they can do."};
  std::string wanted;
  line.add("--device", wanted, "show only this one [all]");
  line.parse(argc, argv);

  int count = 0;
  // NULL-terminated, and owned by us: the devices in it are valid until the list is freed.
  const std::unique_ptr<ibv_device *[], decltype(&ibv_free_device_list)> devices(
      check_ptr(ibv_get_device_list(&count), "ibv_get_device_list"), ibv_free_device_list);
  int shown = 0;
  std::string names;
  for (int i = 0; i < count; ++i) {
    const std::string name = ibv_get_device_name(devices[i]);
    names += (i ? ", " : "") + name;
    if (!wanted.empty() && wanted != name)
      continue;
    show_device(devices[i]);
    ++shown;
  }
  if (count == 0)
    throw Error("ibv_get_device_list", "this machine has no RDMA device",
                "./lab doctor tells how to get one; see lessons/troubleshooting.md#no-device");
  if (shown == 0)
    throw Error("--device " + wanted, "the devices are " + names);
}
// [list]

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, hello_device);
}

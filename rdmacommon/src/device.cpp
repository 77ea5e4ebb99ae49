// SPDX-License-Identifier: MIT
#include "rdmacommon/device.hpp"

#include "hints.hpp"
#include "rdmacommon/check.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace rdmacommon {
namespace {

using unique_device_list = std::unique_ptr<ibv_device *[], decltype(&ibv_free_device_list)>;

std::string join(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

ibv_port_attr query_port(ibv_context *context, uint8_t number) {
  ibv_port_attr attr{};
  check_rc(ibv_query_port(context, number, &attr), "ibv_query_port");
  return attr;
}

/// The valid entries of a port's GID table; it has holes, as addresses come and go.
std::vector<ibv_gid_entry> gid_table(ibv_context *context, uint8_t port) {
  ibv_device_attr device{};
  check_rc(ibv_query_device(context, &device), "ibv_query_device");
  size_t length = 0; // the call fills in the tables of all ports
  for (uint8_t number = 1; number <= device.phys_port_cnt; ++number)
    length += static_cast<size_t>(query_port(context, number).gid_tbl_len);
  std::vector<ibv_gid_entry> table(length);
  const ssize_t count = ibv_query_gid_table(context, table.data(), table.size(), 0);
  if (count < 0) // this one returns the error number negated
    throw_errno(static_cast<int>(-count), "ibv_query_gid_table");
  table.resize(static_cast<size_t>(count));
  std::erase_if(table, [port](const ibv_gid_entry &entry) { return entry.port_num != port; });
  return table;
}

/// The port that the options name, or else the active ones.
std::vector<uint8_t> possible_ports(ibv_context *context, int wanted) {
  ibv_device_attr attr{};
  check_rc(ibv_query_device(context, &attr), "ibv_query_device");
  const std::string name = ibv_get_device_name(context->device);
  std::vector<uint8_t> possible;
  std::vector<std::string> ports;
  for (uint8_t number = 1; number <= attr.phys_port_cnt; ++number) {
    const ibv_port_state state = query_port(context, number).state;
    if (wanted == number || (wanted == 0 && state == IBV_PORT_ACTIVE))
      possible.push_back(number);
    ports.push_back(std::to_string(number) + " (" + ibv_port_state_str(state) + ")");
  }
  if (wanted != 0 && possible.empty())
    throw Error("--port " + std::to_string(wanted), name + " has the ports " + join(ports));
  return possible;
}

ibv_gid_entry choose_gid(ibv_context *context, uint8_t port, int wanted) {
  const ibv_gid_entry *best = nullptr;
  const std::vector<ibv_gid_entry> table = gid_table(context, port);
  std::vector<std::string> indices;
  for (const ibv_gid_entry &entry : table) {
    if (wanted == static_cast<int>(entry.gid_index))
      return entry;
    if (gid_score(entry) > (best ? gid_score(*best) : 0))
      best = &entry;
    indices.push_back(std::to_string(entry.gid_index) + " (" + to_text(entry.gid) + ")");
  }
  const std::string name = ibv_get_device_name(context->device);
  if (wanted >= 0)
    throw Error("--gid-index " + std::to_string(wanted),
                name + " port " + std::to_string(port) + " has the GID indices " + join(indices));
  if (best == nullptr)
    throw Error("choose a GID", name + " port " + std::to_string(port) + " has no usable GID",
                hint("give the port's netdev an IP address", "no-gid"));
  return *best;
}

ibv_mtu mtu_of(int bytes) {
  ibv_mtu mtu = IBV_MTU_256;
  while (mtu_bytes(mtu) < bytes)
    mtu = static_cast<ibv_mtu>(mtu + 1);
  return mtu;
}

/// An active port before one that is down (--port can name either), and then by the GID.
bool is_better(const Port &port, const std::optional<Port> &than) {
  const auto rank = [](const Port &its) {
    return std::pair(its.attr.state == IBV_PORT_ACTIVE, gid_score(its.gid));
  };
  return !than || rank(port) > rank(*than);
}

/// The port of this device that the options name, or the active one with the best GID; nullopt if
/// none is active.
/// @throws Error if no port can be taken, with the reason of the first one
std::optional<Port> best_port(unique_context context, const DeviceOptions &options) {
  std::optional<Port> best;
  std::exception_ptr unusable;
  for (const uint8_t number : possible_ports(context.get(), options.port))
    try {
      const ibv_gid_entry gid = choose_gid(context.get(), number, options.gid_index);
      const ibv_port_attr attr = query_port(context.get(), number);
      Port port{.context = nullptr,
                .number = number,
                .attr = attr,
                .gid = gid,
                .mtu = std::min(attr.active_mtu, mtu_of(options.mtu)),
                .traffic_class = options.traffic_class};
      if (is_better(port, best))
        best = std::move(port);
    } catch (const Error &) {
      unusable = unusable ? unusable : std::current_exception();
    }
  if (!best && unusable)
    std::rethrow_exception(unusable);
  if (best)
    best->context = std::move(context);
  return best;
}

} // namespace

std::string Port::device_name() const {
  return ibv_get_device_name(context->device);
}

bool Port::is_roce() const {
  return attr.link_layer == IBV_LINK_LAYER_ETHERNET;
}

Port open_port(const DeviceOptions &options) {
  int count = 0;
  const unique_device_list devices(check_ptr(ibv_get_device_list(&count), "ibv_get_device_list"),
                                   ibv_free_device_list);
  std::vector<std::string> names;
  std::optional<Port> best;
  std::exception_ptr unusable; // the first error of a device that was left out
  for (int i = 0; i < count; ++i) {
    const std::string name = names.emplace_back(ibv_get_device_name(devices[i]));
    if (!options.device.empty() && options.device != name)
      continue;
    // [iwarp]
    if (devices[i]->transport_type == IBV_TRANSPORT_IWARP) {
      unusable = std::make_exception_ptr(
          Unsupported(name + " is an iWARP device: only rdma_cm connects its queue pairs"));
      continue;
    }
    // [iwarp]
    try {
      std::optional<Port> port = best_port(
          unique_context(check_ptr(ibv_open_device(devices[i]), "ibv_open_device")), options);
      if (port && is_better(*port, best))
        best = std::move(port);
    } catch (const Error &) {
      unusable = unusable ? unusable : std::current_exception();
    }
  }
  if (best)
    return std::move(*best);
  if (unusable)
    std::rethrow_exception(unusable);
  if (names.empty())
    throw Error("open a device", "this machine has no RDMA device",
                hint("run ./lab doctor", "no-device"));
  if (!options.device.empty() &&
      std::find(names.begin(), names.end(), options.device) == names.end())
    throw Error("--device " + options.device, "the devices are " + join(names));
  throw Error("open a device", "none of these has an active port: " + join(names),
              hint("bring the port's link up", "port-down"));
}

// [require-atomics]
void require_atomics(ibv_context *context) {
  ibv_device_attr device{};
  check_rc(ibv_query_device(context, &device), "ibv_query_device");
  if (device.atomic_cap == IBV_ATOMIC_NONE)
    throw Unsupported("this device has no atomics (atomic_cap is IBV_ATOMIC_NONE)");
}
// [require-atomics]

int gid_score(const ibv_gid_entry &entry) {
  if (entry.gid_type == IBV_GID_TYPE_IB)
    return 1 + (entry.gid_index == 0);
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2)
    return 0; // RoCEv1 cannot leave its Ethernet segment, and rxe does not speak it
  in6_addr address;
  std::memcpy(&address, entry.gid.raw, sizeof address);
  if (IN6_IS_ADDR_V4MAPPED(&address))
    return 3;
  return IN6_IS_ADDR_LINKLOCAL(&address) ? 1 : 2;
}

std::string to_text(const ibv_gid &gid) {
  char text[INET6_ADDRSTRLEN];
  return check_ptr(inet_ntop(AF_INET6, gid.raw, text, sizeof text), "inet_ntop");
}

int mtu_bytes(ibv_mtu mtu) {
  return 128 << mtu;
}

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// Datagrams: the Q_Keys of both sides, as facts that ./lab lint compares, and multicast groups
// whose packets do not come in.

#include "tracked.hpp"

#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace lint {
namespace {

// A group that a queue pair was attached to, until the program looks for its datagrams.
struct Attached {
  std::weak_ptr<Qp> qp;
  ibv_gid group;
  Site site;
};

std::vector<Attached> &all_attached() {
  static auto &all = *new std::vector<Attached>;
  return all;
}

// The MAC address to which the group's packets go, as /proc/net/dev_mcast has it: of an IPv6 group
// (RFC 2464), or of the IPv4 group that the GID maps (RFC 1112).
std::string mac_of(const ibv_gid &group) {
  const auto *raw = group.raw;
  return raw[0] == 0xff ? print("3333%02x%02x%02x%02x", raw[12], raw[13], raw[14], raw[15])
                        : print("01005e%02x%02x%02x", raw[13] & 0x7f, raw[14], raw[15]);
}

// Returns true if an interface of this network namespace takes the group's packets, or if the
// kernel does not say.
bool is_taken_in(const ibv_gid &group) {
  std::ifstream file("/proc/net/dev_mcast");
  if (!file)
    return true;
  const std::string wanted = mac_of(group);
  for (std::string number, device, users, global, mac;
       file >> number >> device >> users >> global >> mac;)
    if (mac == wanted)
      return true;
  return false;
}

} // namespace

void note_datagram(const Qp &qp, const Request &request, const Site &site) {
  constexpr std::uint32_t every_member = 0xffffff; // QP number for a whole multicast group
  constexpr std::uint32_t its_own = 1u << 31;      // the sender takes the Q_Key of its queue pair
  const std::uint32_t qkey = request.qkey & its_own ? qp.attr.qkey : request.qkey;
  static auto &known = *new std::set<std::pair<std::uint32_t, std::uint32_t>>;
  if (request.dest_qp != every_member && known.emplace(request.dest_qp, qkey).second)
    without_lock([to = request.dest_qp, qkey, site, name = qp.name] {
      fact("datagram",
           print("\"to\":%u,\"qkey\":%u,\"name\":\"%s\",\"at\":", to, qkey, name.c_str()) +
               json_of(site));
    });
}

void attached(ibv_qp *queue, const ibv_gid &group) {
  std::shared_ptr<Qp> qp;
  {
    const Locked lock;
    qp = find<Qp>(queue);
  }
  if (!qp || !is_ethernet(queue->context, qp->attr.port_num))
    return;
  const Locked lock;
  all_attached().push_back({qp, group, Site::here()});
}

void check_groups(const void *cq) {
  std::erase_if(all_attached(), [cq](const Attached &one) {
    const auto qp = one.qp.lock();
    if (qp && qp->live && qp->recv_cq == cq && !is_taken_in(one.group))
      report(rules::group_not_joined, "no interface takes packets to " + mac_of(one.group),
             qp->name, qp->history(), &one.site);
    return !qp || !qp->live || qp->recv_cq == cq;
  });
}

} // namespace lint

// SPDX-License-Identifier: MIT
// Changes of a queue pair's state: the rules of the connection. What only a comparison of both
// sides shows is written as a fact, which ./lab lint compares.

#include "next.hpp"
#include "tracked.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace lint {
namespace {

const char *word(ibv_qp_state state) {
  constexpr const char *words[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state <= IBV_QPS_ERR ? words[state] : "an unknown state";
}

struct Named {
  int bit;
  const char *name;
};
const Named names[] = {{IBV_QP_PKEY_INDEX, "pkey_index"},
                       {IBV_QP_PORT, "port_num"},
                       {IBV_QP_ACCESS_FLAGS, "qp_access_flags"},
                       {IBV_QP_QKEY, "qkey"},
                       {IBV_QP_AV, "ah_attr"},
                       {IBV_QP_PATH_MTU, "path_mtu"},
                       {IBV_QP_DEST_QPN, "dest_qp_num"},
                       {IBV_QP_RQ_PSN, "rq_psn"},
                       {IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic"},
                       {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer"},
                       {IBV_QP_SQ_PSN, "sq_psn"},
                       {IBV_QP_TIMEOUT, "timeout"},
                       {IBV_QP_RETRY_CNT, "retry_cnt"},
                       {IBV_QP_RNR_RETRY, "rnr_retry"},
                       {IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic"}};

// Returns what ibv_modify_qp(3) requires for a change to this state, besides IBV_QP_STATE.
int required(ibv_qp_type type, ibv_qp_state to) {
  if (type == IBV_QPT_UD)
    return to == IBV_QPS_INIT  ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
           : to == IBV_QPS_RTS ? IBV_QP_SQ_PSN
                               : 0;
  if (type != IBV_QPT_RC && type != IBV_QPT_UC)
    return 0;
  const bool reliable = type == IBV_QPT_RC;
  switch (to) {
  case IBV_QPS_INIT:
    return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  case IBV_QPS_RTR:
    return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
  case IBV_QPS_RTS:
    return IBV_QP_SQ_PSN | (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                           IBV_QP_MAX_QP_RD_ATOMIC
                                     : 0);
  default:
    return 0;
  }
}

void remember(ibv_qp_attr &known, const ibv_qp_attr &attr, int mask) {
#define TAKE(bit, member)                                                                          \
  if (mask & bit)                                                                                  \
    known.member = attr.member;
  TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags)
  TAKE(IBV_QP_PORT, port_num)
  TAKE(IBV_QP_QKEY, qkey)
  TAKE(IBV_QP_AV, ah_attr)
  TAKE(IBV_QP_PATH_MTU, path_mtu)
  TAKE(IBV_QP_DEST_QPN, dest_qp_num)
  TAKE(IBV_QP_RQ_PSN, rq_psn)
  TAKE(IBV_QP_SQ_PSN, sq_psn)
  TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic)
  TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer)
  TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic)
#undef TAKE
}

enum class GidKind { empty, link_local, ipv4, other };

GidKind kind_of(const ibv_gid &gid) {
  if (std::all_of(std::begin(gid.raw), std::end(gid.raw), [](auto byte) { return !byte; }))
    return GidKind::empty;
  if (gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80)
    return GidKind::link_local;
  constexpr unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, mapped, sizeof mapped) ? GidKind::other : GidKind::ipv4;
}

const char *word(GidKind kind) {
  constexpr const char *words[] = {"empty", "link-local", "IPv4", "IPv6"};
  return words[static_cast<int>(kind)];
}

} // namespace

namespace {

// rxe counts them by the first name, mlx5 by the second.
std::uint64_t counted(const ibv_context *context, std::initializer_list<const char *> names) {
  for (const char *counter : names) {
    const std::string path =
        std::string(context->device->ibdev_path) + "/ports/1/hw_counters/" + counter;
    if (const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC); file >= 0) {
      char text[32] = "";
      const ssize_t length = read(file, text, sizeof text - 1);
      close(file);
      return length > 0 ? std::strtoull(text, nullptr, 10) : 0;
    }
  }
  return 0;
}

} // namespace

std::uint64_t rnr_naks(const ibv_context *context) {
  return counted(context, {"send_rnr_err", "out_of_buffer"});
}

std::uint64_t rnr_naks_received(const ibv_context *context) {
  return counted(context, {"rcvd_rnr_err", "rnr_nak_retry_err"});
}

bool is_ethernet(ibv_context *context, std::uint8_t number) {
  using QueryPort = int(ibv_context *, std::uint8_t, _compat_ibv_port_attr *);
  static const auto query_port = preload::next<QueryPort>("ibv_query_port");
  ibv_port_attr port{};
  return query_port &&
         !query_port(context, number, reinterpret_cast<_compat_ibv_port_attr *>(&port)) &&
         port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

namespace {

// The own GID of an address. Under no lock.
std::optional<ibv_gid> own_gid(const ibv_context *context, const ibv_ah_attr &address) {
  using QueryGid = int(ibv_context *, std::uint8_t, int, ibv_gid *);
  static const auto query_gid = preload::next<QueryGid>("ibv_query_gid");
  ibv_gid gid{};
  if (!query_gid ||
      query_gid(const_cast<ibv_context *>(context), address.port_num, address.grh.sgid_index, &gid))
    return {};
  return gid;
}

std::string text_of(const ibv_gid &gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

} // namespace

void check_gid(const Qp &qp) {
  if (!qp.gid)
    return;
  without_lock([context = qp.context, address = qp.attr.ah_attr, before = *qp.gid, name = qp.name,
                history = qp.history()] {
    const ibv_gid now = own_gid(context, address).value_or(ibv_gid{});
    if (std::memcmp(&before, &now, sizeof now) != 0)
      report(rules::gid_changed,
             print("sgid_index %u was %s at RTR, and is %s now", address.grh.sgid_index,
                   text_of(before).c_str(),
                   kind_of(now) == GidKind::empty ? "empty" : text_of(now).c_str()),
             name, history);
  });
}

// Looks at an address, of a QP that is to become RTR or of an address handle. Under no lock.
void check_address(ibv_context *context, const ibv_ah_attr &address, const std::string &object,
                   const History &history) {
  if (!is_ethernet(context, address.port_num))
    return;
  if (!address.is_global) {
    report(rules::no_grh, print("port %u is Ethernet, and is_global is 0", address.port_num),
           object, history);
    return;
  }
  const GidKind ours = kind_of(own_gid(context, address).value_or(ibv_gid{})),
                theirs = kind_of(address.grh.dgid);
  if (ours == GidKind::empty)
    report(rules::gid_empty,
           print("sgid_index %u of port %u", address.grh.sgid_index, address.port_num), object,
           history);
  else if (address.grh.dgid.raw[0] != 0xff && ours != theirs)
    report(rules::gid_type,
           print("sgid_index %u is %s, the peer's GID is %s", address.grh.sgid_index, word(ours),
                 word(theirs)),
           object, history);
}

void will_modify(ibv_qp *queue, const ibv_qp_attr &attr, int mask) {
  std::string name;
  History history;
  {
    const Locked lock;
    const auto qp = find<Qp>(queue);
    if (!qp)
      return;
    name = qp->name;
    history = qp->history();
    if (mask & IBV_QP_STATE && attr.qp_state != qp->state) {
      const bool next = qp->state < IBV_QPS_RTS && attr.qp_state == qp->state + 1;
      std::string missing;
      for (const Named &one : names)
        if (next && required(qp->type, attr.qp_state) & ~mask & one.bit)
          missing += (missing.empty() ? "" : ", ") + std::string(one.name);
      if (!missing.empty() && !is_iwarp(queue->context)) // there, the driver sets the rest
        report(rules::missing_attribute, print("to %s without ", word(attr.qp_state)) + missing,
               qp->name, history);
      const bool allowed =
          next || attr.qp_state == IBV_QPS_RESET || attr.qp_state == IBV_QPS_ERR ||
          (qp->state == IBV_QPS_RTS && attr.qp_state == IBV_QPS_SQD) ||
          ((qp->state == IBV_QPS_SQD || qp->state == IBV_QPS_SQE) && attr.qp_state == IBV_QPS_RTS);
      if (!allowed && !is_iwarp(queue->context))
        report(rules::wrong_state, print("from %s to %s", word(qp->state), word(attr.qp_state)),
               qp->name, history);
    }
    if (mask & IBV_QP_TIMEOUT && !attr.timeout)
      report(rules::no_timeout, "timeout 0", name, history);
    if (mask & IBV_QP_RETRY_CNT && !attr.retry_cnt)
      report(rules::no_retry, "retry_cnt 0", name, history);
    if (mask & IBV_QP_RNR_RETRY && attr.rnr_retry == 7)
      report(rules::rnr_forever, "rnr_retry 7", name, history);
  }
  if (mask & IBV_QP_AV)
    check_address(queue->context, attr.ah_attr, name, history);
}

void did_modify(ibv_qp *queue, const ibv_qp_attr &attr, int mask, int error) {
  std::optional<ibv_gid> gid;
  if (!error && mask & IBV_QP_AV && attr.ah_attr.is_global)
    gid = own_gid(queue->context, attr.ah_attr);
  const Locked lock;
  const auto qp = find<Qp>(queue);
  if (!qp || error)
    return;
  remember(qp->attr, attr, mask);
  if (mask & IBV_QP_AV)
    qp->gid = gid;
  if (mask & IBV_QP_QKEY)
    fact("ud", print("\"qp\":%u,\"qkey\":%u", qp->number, attr.qkey));
  if (!(mask & IBV_QP_STATE) || attr.qp_state == qp->state)
    return;
  qp->state = attr.qp_state;
  qp->failed = 0; // the program knows
  if (attr.qp_state == IBV_QPS_RTR)
    qp->rnr_at_rtr = rnr_naks(qp->context), qp->rnr_got_at_rtr = rnr_naks_received(qp->context);
  if (attr.qp_state == IBV_QPS_RESET) {
    forget_posted(*qp);
    qp->has_receives = qp->srq;
  }
  if (attr.qp_state == IBV_QPS_RTS && qp->type == IBV_QPT_RC) {
    const ibv_qp_attr &its = qp->attr;
    // A queue pair may be connected to the same peer again, and a new one may have its number.
    static auto &times = *new std::map<std::pair<std::uint32_t, std::uint32_t>, unsigned>;
    fact("qp",
         print("\"qp\":%u,\"dest\":%u,\"time\":%u,\"sq_psn\":%u,\"rq_psn\":%u,\"mtu\":%d,"
               "\"max_rd_atomic\":%u,\"max_dest_rd_atomic\":%u",
               qp->number, its.dest_qp_num, ++times[{qp->number, its.dest_qp_num}], its.sq_psn,
               its.rq_psn, 128 << its.path_mtu, its.max_rd_atomic, its.max_dest_rd_atomic));
  }
}

} // namespace lint

// SPDX-License-Identifier: MIT
// The words are those of rdma-core's enums without the prefix that all of one enum share.

#include "names.hpp"

#include "event.hpp"
#include "object_registry.hpp"
#include "next.hpp"

#include <arpa/inet.h>
#include <map>
#include <mutex>
#include <span>

namespace trace {
namespace {

using preload::kept, preload::lock_of_all;

struct Label {
  std::string text;
  std::uint64_t made_in = 0; // Event::outermost()
};

// Counts labels of each kind. Never destroyed, as what is kept. Guarded by lock_of_all().
std::map<std::string, unsigned> &made() {
  static auto &all = *new std::map<std::string, unsigned>;
  return all;
}

std::string next_label(const char *kind) {
  const std::lock_guard lock(lock_of_all());
  return kind + std::to_string(++made()[kind]);
}

void take_back(const char *kind, const std::string &label) {
  const std::lock_guard lock(lock_of_all());
  if (label == kind + std::to_string(made()[kind]))
    --made()[kind];
}

struct Flag {
  unsigned bit;
  const char *name;
};

std::string joined(unsigned flags, std::span<const Flag> known) {
  std::string text;
  for (const Flag &flag : known)
    if (flags & flag.bit) {
      text += (text.empty() ? "" : "|") + std::string(flag.name);
      flags &= ~flag.bit;
    }
  if (flags)
    text += (text.empty() ? "" : "|") + print("0x%x", flags);
  return text.empty() ? "0" : text;
}

template <typename Enum> std::string named(Enum value, std::span<const char *const> names) {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() && names[index] ? names[index] : std::to_string(index);
}

} // namespace

std::string new_label(const char *kind, const void *object) {
  Label &its = kept<Label>().renew(object);
  its.made_in = Event::outermost();
  return its.text = next_label(kind);
}

std::string label(const void *object) {
  if (!object)
    return "NULL";
  const Label *its = kept<Label>().find(object);
  return its && !its->text.empty() ? its->text : "?";
}

std::string label(const rdma_cm_id *id) {
  const void *object = id;
  const std::string known = label(object);
  return known == "?" ? new_label("id", id) : known;
}

void end_label(const char *kind, const void *object) {
  const Label *its = kept<Label>().find(object);
  if (its && its->made_in == Event::outermost())
    take_back(kind, its->text);
  kept<Label>().renew(object);
}

std::string label(const ibv_qp *qp) {
  return qp ? print("qp 0x%x", qp->qp_num) : "NULL";
}

std::string access_flags(unsigned flags) {
  static constexpr Flag known[] = {{IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"},
                                   {IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
                                   {IBV_ACCESS_REMOTE_READ, "REMOTE_READ"},
                                   {IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"},
                                   {IBV_ACCESS_MW_BIND, "MW_BIND"},
                                   {IBV_ACCESS_ZERO_BASED, "ZERO_BASED"},
                                   {IBV_ACCESS_ON_DEMAND, "ON_DEMAND"},
                                   {IBV_ACCESS_HUGETLB, "HUGETLB"},
                                   {IBV_ACCESS_RELAXED_ORDERING, "RELAXED_ORDERING"}};
  return joined(flags, known);
}

std::string send_flags(unsigned flags) {
  static constexpr Flag known[] = {{IBV_SEND_FENCE, "FENCE"},
                                   {IBV_SEND_SIGNALED, "SIGNALED"},
                                   {IBV_SEND_SOLICITED, "SOLICITED"},
                                   {IBV_SEND_INLINE, "INLINE"},
                                   {IBV_SEND_IP_CSUM, "IP_CSUM"}};
  return joined(flags, known);
}

std::string send_opcode(ibv_wr_opcode opcode) {
  static constexpr const char *names[] = {"RDMA_WRITE",
                                          "RDMA_WRITE_WITH_IMM",
                                          "SEND",
                                          "SEND_WITH_IMM",
                                          "RDMA_READ",
                                          "ATOMIC_CMP_AND_SWP",
                                          "ATOMIC_FETCH_AND_ADD",
                                          "LOCAL_INV",
                                          "BIND_MW",
                                          "SEND_WITH_INV",
                                          "TSO",
                                          "DRIVER1",
                                          nullptr,
                                          nullptr,
                                          "FLUSH",
                                          "ATOMIC_WRITE"};
  return named(opcode, names);
}

std::string completion_opcode(ibv_wc_opcode opcode) {
  if (opcode == IBV_WC_RECV)
    return "RECV";
  if (opcode == IBV_WC_RECV_RDMA_WITH_IMM)
    return "RECV_RDMA_WITH_IMM";
  static constexpr const char *names[] = {"SEND",      "RDMA_WRITE",  "RDMA_READ", "COMP_SWAP",
                                          "FETCH_ADD", "BIND_MW",     "LOCAL_INV", "TSO",
                                          "FLUSH",     "ATOMIC_WRITE"};
  return named(opcode, names);
}

std::string completion_status(ibv_wc_status status) {
  static constexpr const char *names[] = {
      "SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
      "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",       "BAD_RESP_ERR",
      "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",    "REM_OP_ERR",
      "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
      "REM_ABORT_ERR",    "INV_EECN_ERR",      "INV_EEC_STATE_ERR", "FATAL_ERR",
      "RESP_TIMEOUT_ERR", "GENERAL_ERR"};
  return named(status, names);
}

std::string qp_state(ibv_qp_state state) {
  static constexpr const char *names[] = {"RESET", "INIT", "RTR", "RTS",
                                          "SQD",   "SQE",  "ERR", "UNKNOWN"};
  return named(state, names);
}

std::string qp_type(ibv_qp_type type) {
  static constexpr const char *names[] = {nullptr,      nullptr,    "RC",      "UC",
                                          "UD",         nullptr,    nullptr,   nullptr,
                                          "RAW_PACKET", "XRC_SEND", "XRC_RECV"};
  return type == IBV_QPT_DRIVER ? "DRIVER" : named(type, names);
}

std::string address(const sockaddr *address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (!address)
    return "NULL";
  if (address->sa_family == AF_INET) {
    const auto *in = reinterpret_cast<const sockaddr_in *>(address);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
    return print("%s:%u", text, ntohs(in->sin_port));
  }
  if (address->sa_family == AF_INET6) {
    const auto *in = reinterpret_cast<const sockaddr_in6 *>(address);
    inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
    return print("[%s]:%u", text, ntohs(in->sin6_port));
  }
  return address->sa_family == AF_IB ? "AF_IB" : print("address of family %d", address->sa_family);
}

std::string gid(const ibv_gid &gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

std::string async_event(const ibv_async_event &event) {
  static const auto words = REAL(ibv_event_type_str);
  std::string text = words(event.event_type);
  switch (event.event_type) {
  case IBV_EVENT_CQ_ERR:
    return text + ", " + label(event.element.cq);
  case IBV_EVENT_QP_FATAL:
  case IBV_EVENT_QP_REQ_ERR:
  case IBV_EVENT_QP_ACCESS_ERR:
  case IBV_EVENT_COMM_EST:
  case IBV_EVENT_SQ_DRAINED:
  case IBV_EVENT_PATH_MIG:
  case IBV_EVENT_PATH_MIG_ERR:
  case IBV_EVENT_QP_LAST_WQE_REACHED:
    return text + ", " + label(event.element.qp);
  case IBV_EVENT_SRQ_ERR:
  case IBV_EVENT_SRQ_LIMIT_REACHED:
    return text + ", " + label(event.element.srq);
  case IBV_EVENT_PORT_ACTIVE:
  case IBV_EVENT_PORT_ERR:
  case IBV_EVENT_LID_CHANGE:
  case IBV_EVENT_PKEY_CHANGE:
  case IBV_EVENT_SM_CHANGE:
  case IBV_EVENT_CLIENT_REREGISTER:
  case IBV_EVENT_GID_CHANGE:
    return text + print(", port %d", event.element.port_num);
  default:
    return text;
  }
}

std::string cm_event(rdma_cm_event_type event) {
  static const auto words = REAL(rdma_event_str);
  const std::string text = words(event), prefix = "RDMA_CM_EVENT_";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

} // namespace trace

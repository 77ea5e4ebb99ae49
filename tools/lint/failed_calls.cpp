// SPDX-License-Identifier: MIT
#include "failed_calls.hpp"

#include "next.hpp"
#include "tracked.hpp"

#include "hints.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace lint {
namespace {

std::uintptr_t number(const void *address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

std::string hex(std::uintptr_t value) {
  return print("0x%llx", static_cast<unsigned long long>(value));
}

bool query(ibv_context *context, ibv_device_attr &device) {
  static const auto ask = preload::next<decltype(::ibv_query_device)>("ibv_query_device");
  return context && ask && !ask(context, &device);
}

// Finds the first pages of the range that are not mapped, or that lack a right. If there are none:
// pages that an old kernel refuses.
std::string what_is_wrong_with(std::uintptr_t from, std::uintptr_t to, bool must_write) {
  std::ifstream maps("/proc/self/maps");
  std::string refused;
  for (std::string line; from < to && std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%llx-%llx %4s", &begin, &end, rights) != 3 || end <= from)
      continue;
    if (begin > from)
      break; // there is a gap before this one
    const std::string pages = "the pages from " + hex(from) + " on are mapped " + rights;
    if (rights[0] != 'r')
      return pages;
    if (must_write && rights[1] != 'w')
      return pages + ", and the access flags allow writing";
    if (rights[1] != 'w' && rights[3] == 's' && refused.empty())
      refused =
          pages + ": kernel 6.1 refuses shared pages that are read-only, kernel 6.12 takes them";
    from = end;
  }
  return from < to ? "nothing is mapped at " + hex(from) : refused;
}

void add_too_large(std::string &text, const char *name, std::uint64_t wanted, std::uint64_t most) {
  if (wanted > most)
    text += (text.empty() ? "" : ", ") + print("%s is %llu, and the device has at most %llu", name,
                                               static_cast<unsigned long long>(wanted),
                                               static_cast<unsigned long long>(most));
}

} // namespace

bool can_be_read(const void *address, std::size_t length) {
  static const bool can_look = [] {
    const char here = 1;
    char copy = 0;
    return read_memory(&here, &copy, 1) == 1;
  }();
  char copy[256];
  length = std::min(length, sizeof copy);
  return !can_look ||
         (address && read_memory(static_cast<const char *>(address), copy, length) == length);
}

void report_null(const char *call, const char *what) {
  report(rules::bad_argument,
         std::string(call) + ": " + what + " is null: has the call that makes it failed?", call);
}

void report_unreadable(const char *call, const void *queue, const char *what, const void *where) {
  std::string name = call;
  {
    const Locked lock;
    if (const auto found = objects().find(queue); found != objects().end())
      name = found->second->name;
  }
  report(rules::bad_argument,
         std::string(call) + ": " + what + " is " + hex(number(where)) +
             ", where nothing is mapped",
         name);
}

bool refuses_qp(const char *call, const ibv_context *context, const ibv_qp_init_attr &attr) {
  for (const auto &[name, pointer] :
       {std::pair<const char *, const void *>{"send_cq", attr.send_cq},
        {"recv_cq", attr.recv_cq},
        {"srq", attr.srq}})
    if (pointer && !can_be_read(pointer, sizeof(ibv_context *))) {
      report_unreadable(call, nullptr, name, pointer);
      return true;
    }
  for (const auto &[name, its] : {std::pair<const char *, const ibv_context *>{
                                      "send_cq", attr.send_cq ? attr.send_cq->context : context},
                                  {"recv_cq", attr.recv_cq ? attr.recv_cq->context : context},
                                  {"srq", attr.srq ? attr.srq->context : context}})
    if (its != context)
      report(rules::other_context,
             std::string(call) + ": " + name + " is of another context than the protection domain",
             call);
  return false;
}

std::string why_not_registered(const void *address, std::size_t length, unsigned access,
                               int error) {
  constexpr unsigned writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  const std::string range = print("%llu B at ", static_cast<unsigned long long>(length)) +
                            hex(number(address)) + print(", access 0x%x", access);
  std::string why;
  if (error == EINVAL && access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
      !(access & IBV_ACCESS_LOCAL_WRITE))
    why = "IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE, too";
  else if (error == EFAULT)
    why = what_is_wrong_with(number(address), number(address) + length, (access & writes) != 0);
  return why.empty() ? "" : range + ": " + why;
}

std::string why_no_qp(ibv_context *context, const ibv_qp_init_attr &attr) {
  std::string why;
  if (attr.qp_type < IBV_QPT_RC)
    why = print("qp_type is %d: has it been set?", static_cast<int>(attr.qp_type));
  if (!attr.send_cq || (!attr.recv_cq && attr.qp_type != IBV_QPT_XRC_SEND))
    why +=
        (why.empty() ? "" : ", ") + std::string(attr.send_cq ? "recv_cq" : "send_cq") + " is null";
  ibv_device_attr device{};
  if (!query(context, device))
    return why;
  const auto wr = static_cast<std::uint64_t>(device.max_qp_wr),
             sge = static_cast<std::uint64_t>(device.max_sge);
  add_too_large(why, "max_send_wr", attr.cap.max_send_wr, wr);
  add_too_large(why, "max_send_sge", attr.cap.max_send_sge, sge);
  if (!attr.srq) {
    add_too_large(why, "max_recv_wr", attr.cap.max_recv_wr, wr);
    add_too_large(why, "max_recv_sge", attr.cap.max_recv_sge, sge);
  }
  return why;
}

std::string why_no_cq(ibv_context *context, int cqe, int vector) {
  std::string why;
  ibv_device_attr device{};
  if (cqe < 1)
    why = print("cqe is %d", cqe);
  else if (query(context, device))
    add_too_large(why, "cqe", static_cast<std::uint64_t>(cqe),
                  static_cast<std::uint64_t>(device.max_cqe));
  if (vector < 0 || vector >= context->num_comp_vectors)
    why += (why.empty() ? "" : ", ") +
           print("comp_vector is %d, and the device has %d", vector, context->num_comp_vectors);
  return why;
}

std::string why_not_connected(const rdma_cm_id *id, const rdma_conn_param *param,
                              std::size_t most_data) {
  std::string why;
  if (!param)
    return why;
  if (param->private_data_len > most_data)
    why = print("private_data_len is %u, and InfiniBand and RoCE carry %zu here",
                param->private_data_len, most_data);
  ibv_device_attr device{};
  if (!query(id->verbs, device))
    return why;
  if (param->responder_resources != RDMA_MAX_RESP_RES)
    add_too_large(why, "responder_resources", param->responder_resources,
                  static_cast<std::uint64_t>(device.max_qp_rd_atom));
  if (param->initiator_depth != RDMA_MAX_INIT_DEPTH)
    add_too_large(why, "initiator_depth", param->initiator_depth,
                  static_cast<std::uint64_t>(device.max_qp_init_rd_atom));
  return why;
}

namespace {

struct Interrupted {
  const char *call = nullptr;
  Site site;
  pid_t pid = 0;
};

Interrupted &last_interrupted() { // under the lock
  static auto &its = *new Interrupted;
  return its;
}

void at_exit(int status, void *) {
  const Locked lock;
  const Interrupted &last = last_interrupted();
  if (last.call && status && last.pid == getpid())
    report(rules::interrupted,
           std::string(last.call) + print(": EINTR, and the program ended with %d", status),
           last.call, {}, &last.site);
}

} // namespace

void interrupted(const char *call) {
  [[maybe_unused]] static const int registered = on_exit(at_exit, nullptr);
  const Locked lock;
  last_interrupted() = {call, Site::here(), getpid()};
}

void called_again(const char *call) {
  const Locked lock;
  if (last_interrupted().call == call)
    last_interrupted().call = nullptr;
}

void failed(const char *call, int error, const std::string &why) {
  error = error < 0 ? -error : error; // some providers return it negated
  const LibraryScope library_scope;
  if (made_by_library(Site::here()))
    return;
  const char *name = strerrorname_np(error);
  std::string text = std::string(call) + ": " + (name ? name : std::to_string(error));
  const std::string hint = rdmacommon::hint_for_errno(call, error);
  if (!why.empty())
    text += ": " + why;
  if (!hint.empty()) // ends in the entry of troubleshooting.md
    text += why.empty() ? ": " + hint : hint.substr(hint.rfind("; see "));
  report(rules::call_failed, text, call);
}

} // namespace lint

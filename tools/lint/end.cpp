// SPDX-License-Identifier: MIT
// The checks at exit: leaks, and access that no peer can have.

#include "tracked.hpp"

#include <unistd.h>

namespace lint {
namespace {

constexpr unsigned remote =
    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

std::string words(unsigned access) {
  std::string text;
  const auto add = [&](unsigned flag, const char *name) {
    if (access & flag)
      text += (text.empty() ? "" : " | ") + std::string(name);
  };
  add(IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE");
  add(IBV_ACCESS_REMOTE_READ, "REMOTE_READ");
  add(IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC");
  return text;
}

// Flags of regions that no queue pair of their PD allows. Destroyed ones count: most programs have
// tidied up by now.
void check_access() {
  std::vector<std::shared_ptr<Object>> all_of(destroyed().begin(), destroyed().end());
  for (const auto &[address, object] : objects())
    if (object->live)
      all_of.push_back(object);
  std::map<const void *, unsigned> allowed; // by PD
  for (const auto &object : all_of)
    if (const auto qp = std::dynamic_pointer_cast<Qp>(object))
      if (qp->attr.dest_qp_num && qp->pid == getpid())
        allowed[qp->pd] |= qp->attr.qp_access_flags | 1u << 31; // one was connected
  for (const auto &object : all_of) {
    const auto mr = std::dynamic_pointer_cast<Mr>(object);
    if (!mr || mr->internal || mr->pid != getpid())
      continue;
    const unsigned without = mr->access & remote & ~allowed[mr->pd];
    if (allowed[mr->pd] && without && !(mr->access & IBV_ACCESS_MW_BIND))
      report(rules::access_mismatch, mr->name + " has " + words(without), mr->name, mr->history(),
             &mr->made);
    if (mr->access & remote)
      without_lock([mr] {
        fact("mr", print("\"rkey\":%u,\"access\":%u,\"name\":\"%s\",\"made\":", mr->rkey,
                         mr->access & remote, mr->name.c_str()) +
                       json_of(mr->made));
      });
  }
  for (const auto &[rkey, access] : used_access())
    fact("used", print("\"rkey\":%u,\"access\":%u", rkey, access));
}

} // namespace

void check_end() {
  report_faults();
  const Locked lock;
  for (const auto &[address, object] : objects()) {
    if (!object->live || object->internal || object->pid != getpid() ||
        std::dynamic_pointer_cast<CmEvent>(object)) // the end of the process acknowledges it
      continue;
    report(rules::leak, object->name + " was not destroyed", object->name, {}, &object->made);
  }
  check_access();
}

namespace {

// After main() and the destructors of the program's static objects.
[[gnu::destructor]] void at_exit() {
  check_end();
  end_by_severity();
}

} // namespace
} // namespace lint

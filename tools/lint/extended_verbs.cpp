// SPDX-License-Identifier: MIT
// The extended interfaces: the end of a list that ibv_wr_*() builds, and completions read in place
// by ibv_start_poll(). Their pointers are in each QP and CQ. RDMALINT_POISON=1 is here, too: it
// overwrites members of failed completions, for both ways to poll.

#include "failed_calls.hpp"
#include "object_registry.hpp"
#include "tracked.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace lint {
namespace {

struct ExtendedCq {
  ibv_cq_ex original{}; // for its functions
  std::uint64_t wc_flags = 0;
};

// Only a CQ whose functions were replaced comes here, so there is something kept of it.
const ExtendedCq &its_of(const ibv_cq_ex *cq) {
  return *preload::kept<ExtendedCq>().find(cq);
}

void check_thread(const char *call, pid_t owner, const void *object) {
  if (!owner || owner == thread_id())
    return;
  const Locked lock;
  if (const auto its = objects().find(object); its != objects().end())
    report(rules::two_threads,
           print("%s in thread %d, but thread %d began the section", call, thread_id(), owner),
           its->second->name, its->second->history());
}

// ---- completions read in place

void take(ibv_cq_ex *cq, const ExtendedCq &its) {
  const ibv_cq *base = ibv_cq_ex_to_cq(cq);
  const std::uint32_t number = its.wc_flags & IBV_WC_EX_WITH_QP_NUM ? cq->read_qp_num(cq) : 0;
  completed(base, cq->wr_id, cq->status,
            cq->status == IBV_WC_SUCCESS ? cq->read_opcode(cq) : IBV_WC_SEND, number);
}

void set_poller(const void *cq, pid_t thread) {
  const Locked lock;
  if (const auto its = find<Cq>(cq))
    its->poller = thread;
}

int start_poll(ibv_cq_ex *cq, ibv_poll_cq_attr *attr) {
  const ExtendedCq &its = its_of(cq);
  const Use use("ibv_start_poll", cq);
  if (use.refused())
    return EINVAL;
  const int error = its.original.start_poll(cq, attr);
  polled(cq, 1, error ? 0 : 1);
  if (!error) {
    set_poller(cq, thread_id());
    take(cq, its);
  } else if (error != ENOENT) {
    failed("ibv_start_poll", EIO, ""); // mlx5 returns a negative number
  }
  return error;
}

int next_poll(ibv_cq_ex *cq) {
  const ExtendedCq &its = its_of(cq);
  const int error = its.original.next_poll(cq);
  if (!error)
    take(cq, its);
  else if (error != ENOENT)
    failed("ibv_next_poll", EIO, "");
  return error;
}

void end_poll(ibv_cq_ex *cq) {
  pid_t poller = 0;
  {
    const Locked lock;
    if (const auto its = find<Cq>(cq))
      poller = its->poller;
  }
  check_thread("ibv_end_poll", poller, cq);
  set_poller(cq, 0);
  its_of(cq).original.end_poll(cq);
}

// ---- the members that are not valid in a failed completion
//
// They are overwritten, so a program that looks at them finds nonsense on SoftRoCE as well.

bool poisons() {
  static const bool it = [] {
    const char *wanted = std::getenv("RDMALINT_POISON");
    return wanted && *wanted == '1';
  }();
  return it;
}

template <typename T> T nonsense() {
  T value;
  std::memset(&value, 0xa5, sizeof value);
  return value;
}

template <auto Read> auto read_poisoned(ibv_cq_ex *cq) {
  const auto read = its_of(cq).original.*Read;
  return cq->status == IBV_WC_SUCCESS ? read(cq) : nonsense<decltype(read(cq))>();
}

template <auto... Read> void poison_reads(ibv_cq_ex *cq) {
  ((cq->*Read = cq->*Read ? read_poisoned<Read> : nullptr), ...);
}

} // namespace

void poison(ibv_wc &wc) {
  if (!poisons() || wc.status == IBV_WC_SUCCESS)
    return;
  const ibv_wc valid = wc;
  wc = nonsense<ibv_wc>();
  wc.wr_id = valid.wr_id;
  wc.status = valid.status;
  wc.vendor_err = valid.vendor_err;
  wc.qp_num = valid.qp_num;
}

int complete_list(ibv_qp_ex *qp, const preload::Builder &built) {
  const Use use("ibv_wr_complete", &qp->qp_base);
  if (use.refused())
    return EINVAL;
  check_thread("ibv_wr_complete", built.thread, &qp->qp_base);
  const std::vector<Request> requests = built.requests; // its lock is given back by the call
  const std::uint64_t batch = will_send(&qp->qp_base, requests);
  const int error = built.original.wr_complete(qp);
  did_send(&qp->qp_base, batch, error ? requests.size() : 0, error); // all or nothing
  if (error)
    failed("ibv_wr_complete", error, "");
  return error;
}

void watch_cq(ibv_cq_ex *cq, std::uint64_t wc_flags) {
  const LibraryScope library_scope;
  preload::kept<ExtendedCq>().renew(cq) = {*cq, wc_flags};
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
  cq->end_poll = end_poll;
  if (poisons())
    poison_reads<&ibv_cq_ex::read_opcode, &ibv_cq_ex::read_byte_len, &ibv_cq_ex::read_imm_data,
                 &ibv_cq_ex::read_src_qp, &ibv_cq_ex::read_wc_flags, &ibv_cq_ex::read_slid,
                 &ibv_cq_ex::read_sl, &ibv_cq_ex::read_dlid_path_bits,
                 &ibv_cq_ex::read_completion_ts, &ibv_cq_ex::read_cvlan, &ibv_cq_ex::read_flow_tag,
                 &ibv_cq_ex::read_completion_wallclock_ns>(cq); // read_tm_info() fills a struct
}

} // namespace lint

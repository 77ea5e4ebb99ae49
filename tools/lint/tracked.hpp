// SPDX-License-Identifier: MIT
// The program's objects, as the library knows them.
//
// One lock guards all of it (one_lock.hpp). The record of a destroyed object stays as long as the
// object's memory is in the quarantine (watched_memory.cpp), so that a later use is recognised.
#pragma once

#include "one_lock.hpp"
#include "report.hpp"
#include "work_requests.hpp"

#include <atomic>
#include <deque>
#include <infiniband/verbs.h>
#include <map>
#include <memory>
#include <optional>
#include <rdma/rdma_cma.h>
#include <string>
#include <sys/types.h>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace lint {

struct Object {
  virtual ~Object() = default;
  std::string name; // "cq2", "qp 0x11"
  const ibv_context *context = nullptr;
  pid_t pid = 0; // process that made it
  Site made, destroyed;
  bool live = true;
  std::atomic<bool> internal{false}; // made by librdmacm for itself
  std::vector<pid_t> threads;        // threads that are inside a call on it

  History history() const;
};

// Events that were taken and not acknowledged, by the thread that took them: the object's
// destruction waits for them, but another thread may acknowledge them meanwhile.
class Events {
public:
  void take();
  void acknowledge(std::uint64_t count);
  std::uint64_t open() const;         // counts those of all threads
  std::uint64_t open_on_this() const; // thread

private:
  std::map<pid_t, std::uint64_t> by_thread_;
};

struct Context : Object {};
struct Channel : Object {};   // completion channel
struct CmChannel : Object {}; // rdma_event_channel
struct Ah : Object {
  const void *pd = nullptr;
};
struct Pd : Object {};

struct Qp;

struct Cq : Object {
  const void *channel = nullptr;
  int room = 0;
  std::uint64_t pending = 0; // posted requests that will complete here, not polled yet
  Events events;
  bool event_unpolled = false;  // an event was taken, and no poll since
  bool armed_unpolled = false;  // and it was armed again
  bool armed_late = false;      // armed when something may have completed, not polled since
  bool armed_solicited = false; // for solicited completions only, and no event since
  bool full_batch = false;      // the last poll has returned as many as it was asked for
  std::weak_ptr<Qp> lost;       // was destroyed with requests posted that would complete here
  Site armed_at;
  pid_t poller = 0;      // between start_poll and end_poll
  pid_t last_poller = 0; // thread
};

struct Mr : Object {
  const void *pd = nullptr;
  std::uint64_t base = 0; // address by which requests name its first byte
  char *memory = nullptr; // the first byte itself; null for device memory
  std::uint64_t length = 0;
  unsigned access = 0;
  std::uint32_t lkey = 0, rkey = 0;
  std::uint64_t target_low = UINT64_MAX, target_high = 0; // hull of what the NIC writes to
};

struct Mw : Object {
  const void *pd = nullptr;
};

// A range of one posted request.
struct Range {
  std::weak_ptr<Mr> mr;
  char *memory = nullptr;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
  bool checked = false;      // the checksum holds
  bool is_protected = false; // pages were taken away until the completion
};

struct Posted {
  std::uint64_t wr_id = 0;
  const char *what = "";
  bool signaled = true;
  bool reads = false;       // a READ or an atomic
  const void *ah = nullptr; // address handle of a datagram
  std::uint64_t since = 0;  // in ms
  bool suspect = false;     // its memory is not right, so it is going to fail
  std::uint64_t batch = 0;  // the call that posted it
  std::uint64_t length = 0;
  std::vector<Range> ranges;
  std::uint32_t binds = 0; // rkey that this bind makes valid
  Site site;
};

struct Srq : Object {
  const void *pd = nullptr;
  std::uint32_t max_sge = 0;
  std::deque<Posted> receives;
};

struct Qp : Object {
  std::uint32_t number = 0;
  ibv_qp_type type = IBV_QPT_RC;
  const void *pd = nullptr, *send_cq = nullptr, *recv_cq = nullptr, *srq = nullptr;
  bool all_signaled = false;
  ibv_qp_cap cap{};
  ibv_qp_state state = IBV_QPS_RESET;
  ibv_qp_attr attr{}; // as far as it was set
  std::deque<Posted> sends, receives;
  bool accounted = true;     // its completions can be told from those of others
  bool has_receives = false; // one was posted, or it has an SRQ
  pid_t failed = 0;          // thread that took an error completion
  Site failed_at;
  const char *failure = "";
  std::optional<ibv_gid> gid;       // its own, at RTR
  std::uint64_t taken = 0;          // completions of receives
  std::uint64_t rnr_at_rtr = 0;     // RNR NAKs that its device had sent then
  std::uint64_t rnr_got_at_rtr = 0; // and received
  std::size_t left = 0;             // requests that were posted when it was destroyed
};

struct CmId : Object {
  const void *channel = nullptr;
  Events events;
};

// An event of rdma_cm, as the program has it: a copy (lint_cm.cpp).
struct CmEvent : Object {
  rdma_cm_event *original = nullptr;
};

// The object at `address`; null if it is unknown or of another type. Under the lock.
template <typename T> std::shared_ptr<T> find(const void *address);

// Adds a new object, which takes the place of an old one. Under the lock.
template <typename T> T &add(const void *address, const char *kind, const ibv_context *context);

// All live objects of a type, with their addresses. Under the lock.
template <typename T> std::vector<std::pair<const void *, std::shared_ptr<T>>> all();

std::shared_ptr<Mr> region(const ibv_context *context, std::uint32_t lkey);
std::shared_ptr<Qp> queue_pair(const ibv_context *context, std::uint32_t number);
// Makes region() and queue_pair() find it.
void index(const std::shared_ptr<Mr> &mr);
void index(const std::shared_ptr<Qp> &qp);

// A call on an object. Its construction checks that the object lives, and in which process.
class Use {
public:
  Use(const char *call, const void *object);
  ~Use();
  Use(const Use &) = delete;
  Use &operator=(const Use &) = delete;

  // Returns true if the object is gone. The real function must not be called then.
  bool refused() const { return refused_; }

private:
  std::shared_ptr<Object> object_;
  bool refused_ = false;
};

// The call that destroys an object. Another thread may get its address for a new object before the
// real call returns, so the old one is held here. Its memory goes to the quarantine.
class Destruction {
public:
  Destruction(const char *call, const void *object);
  bool refused() const { return refused_; } // as for Use
  // @param error of the real call; 0 for success
  // @return whether the reason of a failure is known
  bool ended(int error);

private:
  const char *call_;
  const void *address_;
  std::shared_ptr<Object> object_;
  bool refused_ = false;
};

// Regions and queue pairs that were destroyed, the last few thousand. Under the lock.
std::deque<std::shared_ptr<Object>> &destroyed();

// The block at `address` leaves the quarantine. Under no lock.
void forget_dead(const void *address);

// ---- implementation

std::unordered_map<const void *, std::shared_ptr<Object>> &objects();
void note_new(const std::shared_ptr<Object> &object, const char *kind, const ibv_context *context);

template <typename T> std::shared_ptr<T> find(const void *address) {
  const auto found = objects().find(address);
  return found == objects().end() ? nullptr : std::dynamic_pointer_cast<T>(found->second);
}

template <typename T> T &add(const void *address, const char *kind, const ibv_context *context) {
  auto fresh = std::make_shared<T>();
  note_new(fresh, kind, context);
  objects()[address] = fresh;
  return *fresh;
}

template <typename T> std::vector<std::pair<const void *, std::shared_ptr<T>>> all() {
  std::vector<std::pair<const void *, std::shared_ptr<T>>> result;
  for (const auto &[address, object] : objects())
    if (object->live)
      if (auto its = std::dynamic_pointer_cast<T>(object))
        result.emplace_back(address, std::move(its));
  return result;
}

// ---- hooks: what happens on the way (posted.cpp, states.cpp, watched_memory.cpp)

void watch_context(ibv_context *context);
int complete_list(ibv_qp_ex *qp, const preload::Builder &built);
void watch_cq(ibv_cq_ex *cq, std::uint64_t wc_flags);
void poison(ibv_wc &wc); // if RDMALINT_POISON is 1

void made_mr(ibv_pd *pd, ibv_mr *mr, std::uint64_t base, void *memory, unsigned access);
void made_cq(ibv_cq *cq, ibv_comp_channel *channel);
void made_qp(ibv_qp *qp, const ibv_qp_cap &cap, bool all_signaled);
void made_srq(ibv_srq *srq, ibv_pd *pd, std::uint32_t max_sge);

// Before and after ibv_modify_qp.
void will_modify(ibv_qp *qp, const ibv_qp_attr &attr, int mask);
void did_modify(ibv_qp *qp, const ibv_qp_attr &attr, int mask, int error);

using preload::Request;
// Before the real post. @return the batch
std::uint64_t will_send(ibv_qp *qp, const std::vector<Request> &requests);
std::uint64_t will_receive(const void *queue, const std::vector<Request> &requests);
// After it, with the number of requests that it refused, and what it returned.
void did_send(ibv_qp *qp, std::uint64_t batch, std::size_t refused, int error);
void did_receive(const void *queue, std::uint64_t batch, std::size_t refused, int error);
// Forgets what is posted to a queue pair that was reset or destroyed. Under the lock.
void forget_posted(Qp &qp);

// A completion was taken. `opcode` holds only for success. `qp_num` is 0 if the CQ does not tell.
void completed(const void *cq, std::uint64_t wr_id, ibv_wc_status status, ibv_wc_opcode opcode,
               std::uint32_t qp_num);
// @param entries how many the program asked for
void polled(const void *cq, int entries, int count);
void armed(const void *cq, bool solicited_only);
void check_missed(ibv_cq *cq);                   // before it is destroyed; under no lock
void will_wait(const ibv_comp_channel *channel); // for an event
void will_wait_on(const void *channel);          // the same. Under the lock
void will_not_wait_for(int fd);                  // fd is a new channel's. Under the lock
void got_event(const void *cq);
bool is_ethernet(ibv_context *context, std::uint8_t port); // under no lock
inline bool is_iwarp(const ibv_context *context) {
  return context->device->transport_type == IBV_TRANSPORT_IWARP;
}
void check_gid(const Qp &qp); // the queue pair has a failed request
void check_address(ibv_context *context, const ibv_ah_attr &address, const std::string &object,
                   const History &history); // under no lock

// datagram_checks.cpp
void note_datagram(const Qp &qp, const Request &request, const Site &site); // under the lock
void attached(ibv_qp *qp, const ibv_gid &group);
void check_groups(const void *cq); // the program polls the CQ. Under the lock

// RNR NAKs that the device has sent, and received, from any peer; 0 if it does not count them.
std::uint64_t rnr_naks(const ibv_context *context);
std::uint64_t rnr_naks_received(const ibv_context *context);

// watched_memory.cpp. Under the lock.
std::optional<std::uint64_t> checksum(const char *memory,
                                      std::uint64_t length);                 // if it is readable
std::size_t read_memory(const char *memory, void *into, std::size_t length); // @return bytes read
void report_faults(); // reports uses that the signal handler has seen
void protect(Range &range);
void unprotect(Range &range);
void protect_event(void *page, std::size_t length, const Site &acknowledged);
void unprotect_event(void *page);
// The next free() of `address` on this thread only puts the block into the quarantine, so that no
// other object gets it soon. was_kept() @return whether that has happened
void watch_free(const void *address);
bool was_kept();
bool protects(); // RDMALINT_PROTECT=1

// The kinds of access (IBV_ACCESS_REMOTE_*) that this process had by each rkey. Under the lock.
std::map<std::uint32_t, unsigned> &used_access();

// At exit.
void check_end();

} // namespace lint

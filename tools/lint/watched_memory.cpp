// SPDX-License-Identifier: MIT
// Memory of regions: its checksums, its pages, and its end.
//
// free() and munmap() are watched, since memory that ends while a region or a request uses it is
// the most common mistake of all. A build with a sanitizer has a free() of its own and is not
// watched. realloc() is not watched either.

#include "tracked.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

namespace lint {
namespace {

// The hull of all registered memory: most addresses that are freed lie outside.
std::atomic<std::uintptr_t> low{UINTPTR_MAX}, high{0};

constexpr std::uint64_t looked_at = 64 << 10; // bytes of a range

std::uintptr_t number(const void *address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

#if !defined(__SANITIZE_ADDRESS__) // a sanitizer's free() is not watched

// The request in `posted` that uses memory between these; its checksum no longer counts.
const Posted *in_flight(std::deque<Posted> &posted, std::uintptr_t from, std::uintptr_t to) {
  const Posted *found = nullptr;
  for (Posted &one : posted)
    for (Range &range : one.ranges)
      if (range.memory && number(range.memory) < to && number(range.memory) + range.length > from) {
        range.checked = false;
        found = &one;
      }
  return found;
}

// Memory from `from` to `to` is given back by `call`.
void ends(const char *call, std::uintptr_t from, std::uintptr_t to) {
  const Locked lock;
  const auto look = [&](std::deque<Posted> &posted, const Object &queue) {
    const Posted *found = in_flight(posted, from, to);
    if (found)
      report(rules::freed_in_flight,
             print("%s ends the memory of %s wr_id %llu, which is posted to %s", call, found->what,
                   static_cast<unsigned long long>(found->wr_id), queue.name.c_str()),
             queue.name, {{"made", queue.made}, {"posted", found->site}});
    return found != nullptr;
  };
  bool in_use = false;
  for (const auto &[address, qp] : all<Qp>())
    if (qp->pid == getpid() && qp->state != IBV_QPS_ERR && !qp->failed)
      for (auto *posted : {&qp->sends, &qp->receives})
        in_use |= look(*posted, *qp);
  for (const auto &[address, srq] : all<Srq>())
    if (srq->pid == getpid())
      in_use |= look(srq->receives, *srq);
  if (in_use)
    return;
  for (const auto &[address, mr] : all<Mr>()) {
    const std::uintptr_t begin = number(mr->memory), end = begin + mr->length;
    // A region may hold parts of other blocks. One with on-demand paging may outlive its memory.
    if (mr->memory && mr->pid == getpid() && from <= begin && end <= to &&
        !(mr->access & IBV_ACCESS_ON_DEMAND))
      report(rules::freed_registered,
             print("%s ends the memory of %s, which is still registered", call, mr->name.c_str()),
             mr->name, mr->history());
  }
}

#endif

// ---- pages of posted receives, and of events that are acknowledged

// Read by the signal handler without a lock: so of fixed size.
constexpr std::size_t most_pages = 1024, most_faults = 16;
std::atomic<std::uintptr_t> protected_from[most_pages], protected_to[most_pages];
Site acknowledged_at[most_pages]; // without frames: a posted receive
struct sigaction before;

struct Fault {
  std::atomic<bool> there{false};
  Site site, acknowledged;
  std::size_t offset = 0;
};
Fault faults[most_faults];
std::atomic<std::size_t> fault_count{0};

// Gives the pages back; the access is done again. The report is written later: a signal handler
// must not allocate memory.
void on_fault(int signal, siginfo_t *info, void *context) {
  thread_local std::uintptr_t last = 0;
  const std::uintptr_t at = number(info->si_addr);
  for (std::size_t i = 0; i < most_pages; ++i) {
    const std::uintptr_t from = protected_from[i], to = protected_to[i];
    if (!from || at < from || at >= to)
      continue;
    mprotect(reinterpret_cast<void *>(from), to - from, PROT_READ | PROT_WRITE);
    protected_from[i] = 0;
    if (const std::size_t fault = fault_count.fetch_add(1); fault < most_faults) {
      faults[fault].site = Site::here();
      faults[fault].acknowledged = acknowledged_at[i];
      faults[fault].offset = at - from;
      faults[fault].there = true;
    }
    return;
  }
  if (at != last) { // another thread may have given the page back just now
    last = at;
    return;
  }
  if (before.sa_flags & SA_SIGINFO && before.sa_sigaction)
    before.sa_sigaction(signal, info, context);
  else
    sigaction(SIGSEGV, &before, nullptr); // as if we were not here
}

bool handles_faults() {
  static const bool it = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return !sigaction(SIGSEGV, &action, &before);
  }();
  return it;
}

// @return whether the pages are taken away
bool take_away(std::uintptr_t from, std::uintptr_t to, const Site &acknowledged) {
  for (std::size_t i = 0; i < most_pages; ++i)
    if (!protected_from[i]) {
      acknowledged_at[i] = acknowledged;
      protected_to[i] = to;
      protected_from[i] = from;
      if (!mprotect(reinterpret_cast<void *>(from), to - from, PROT_NONE))
        return true;
      protected_from[i] = 0;
      return false;
    }
  return false;
}

// ---- blocks of destroyed objects

thread_local const void *watched = nullptr;
thread_local bool kept = false;

#if !defined(__SANITIZE_ADDRESS__)

constexpr std::size_t room = 1024; // blocks in the quarantine

// Puts a block in. @return the one that has to leave; null if there is room
void *into_quarantine(void *block) {
  static std::mutex mutex;
  static void *blocks[room];
  static std::size_t next = 0;
  const std::lock_guard lock(mutex);
  return std::exchange(blocks[next++ % room], block);
}

#endif

} // namespace

std::size_t read_memory(const char *memory, void *into, std::size_t length) {
  // Not memcpy(): the memory may be a device's, or not mapped any more.
  const iovec here{into, length}, there{const_cast<char *>(memory), length};
  const ssize_t count = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

std::optional<std::uint64_t> checksum(const char *memory, std::uint64_t length) {
  thread_local char copy[looked_at];
  length = std::min(length, looked_at);
  if (read_memory(memory, copy, length) != length)
    return std::nullopt;
  std::uint64_t sum = 0x9e3779b97f4a7c15 ^ length;
  const char *at = copy;
  for (; length >= 8; at += 8, length -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    sum = (sum ^ word) * 0xff51afd7ed558ccd;
    sum ^= sum >> 32;
  }
  for (; length; ++at, --length)
    sum = (sum ^ static_cast<unsigned char>(*at)) * 0x100000001b3;
  return sum;
}

void report_faults() {
  if (!fault_count)
    return;
  for (Fault &fault : faults) {
    if (!fault.there.exchange(false))
      continue;
    if (fault.acknowledged.depth > 0)
      report(rules::event_acked,
             print("byte %zu of an event is used, and the event is acknowledged", fault.offset),
             "an event of rdma_cm", {{"acked", fault.acknowledged}}, &fault.site);
    else
      report(rules::read_early,
             print("byte %zu of a posted receive's whole pages is used", fault.offset),
             "a posted receive", {}, &fault.site);
  }
}

void watch_free(const void *address) {
  watched = address;
  kept = false;
}

bool was_kept() {
  watched = nullptr;
  return std::exchange(kept, false);
}

bool protects() {
  static const bool it = [] {
    const char *wanted = std::getenv("RDMALINT_PROTECT");
    return wanted && *wanted == '1' && handles_faults();
  }();
  return it;
}

void protect(Range &range) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t from = (number(range.memory) + page - 1) / page * page;
  const std::uintptr_t to = (number(range.memory) + range.length) / page * page;
  const auto mr = range.mr.lock();
  if (range.memory && from < to && mr && !(mr->access & IBV_ACCESS_ON_DEMAND))
    range.is_protected = take_away(from, to, {});
}

void protect_event(void *page, std::size_t length, const Site &acknowledged) {
  if (handles_faults())
    take_away(number(page), number(page) + length, acknowledged);
}

// The page is about to be unmapped.
void unprotect_event(void *page) {
  for (auto &from : protected_from)
    if (from == number(page))
      from = 0;
}

void unprotect(Range &range) {
  if (!range.is_protected)
    return;
  const std::uintptr_t at = number(range.memory);
  for (std::size_t i = 0; i < most_pages; ++i)
    if (const std::uintptr_t from = protected_from[i];
        from >= at && from && from < at + range.length) {
      mprotect(reinterpret_cast<void *>(from), protected_to[i] - from, PROT_READ | PROT_WRITE);
      protected_from[i] = 0;
    }
  range.is_protected = false;
}

void made_mr(ibv_pd *pd, ibv_mr *mr, std::uint64_t base, void *memory, unsigned access) {
  const Locked lock;
  Mr &its = add<Mr>(mr, "mr", mr->context);
  its.pd = pd;
  its.base = base;
  its.memory = static_cast<char *>(memory);
  its.length = mr->length;
  its.access = access;
  its.lkey = mr->lkey;
  its.rkey = mr->rkey;
  index(find<Mr>(mr));
  if (memory) {
    low = std::min<std::uintptr_t>(low, number(its.memory));
    high = std::max<std::uintptr_t>(high, number(its.memory) + its.length);
  }
}

} // namespace lint

#if !defined(__SANITIZE_ADDRESS__)

namespace {

template <typename Function> Function *real(std::atomic<Function *> &kept, const char *name) {
  Function *its = kept.load(std::memory_order_acquire);
  if (!its) {
    const lint::LibraryScope library_scope; // dlsym() may free memory
    its = reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
    kept.store(its, std::memory_order_release);
  }
  return its;
}

std::atomic<void (*)(void *)> real_free{nullptr};
std::atomic<int (*)(void *, std::size_t)> real_munmap{nullptr};

} // namespace

extern "C" {

void free(void *memory) noexcept {
  if (lint::LibraryScope::active() && !real_free.load()) // inside dlsym(): lost, and that is little
    return;
  const auto call = real(real_free, "free");
  if (memory && memory == lint::watched) {
    lint::watched = nullptr;
    lint::kept = true;
    memory = lint::into_quarantine(memory);
    if (memory) {
      const lint::LibraryScope library_scope;
      lint::forget_dead(memory);
    }
  }
  // A block that begins before the first region may hold it.
  if (memory && !lint::LibraryScope::active() && lint::number(memory) < lint::high &&
      lint::number(memory) + malloc_usable_size(memory) > lint::low) {
    const lint::LibraryScope library_scope;
    lint::ends("free", lint::number(memory), lint::number(memory) + malloc_usable_size(memory));
  }
  call(memory);
}

int munmap(void *memory, std::size_t length) noexcept {
  const auto call = real(real_munmap, "munmap");
  if (!lint::LibraryScope::active() && lint::number(memory) < lint::high &&
      lint::number(memory) + length > lint::low) {
    const lint::LibraryScope library_scope;
    lint::ends("munmap", lint::number(memory), lint::number(memory) + length);
  }
  return call(memory, length);
}

} // extern "C"

#endif

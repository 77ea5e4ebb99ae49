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
#include <sys/mman.h>
#include <unistd.h>

namespace lint {
namespace {

// The hull of all registered memory: most addresses that are freed lie outside.
std::atomic<std::uintptr_t> low{UINTPTR_MAX}, high{0};

constexpr std::uint64_t looked_at = 64 << 10; // bytes of a range

std::uintptr_t number(const void *address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

bool is_in_flight(const std::deque<Posted> &posted, std::uintptr_t from, std::uintptr_t to,
                  const Posted *&found) {
  for (const Posted &one : posted)
    for (const Range &range : one.ranges)
      if (range.memory && number(range.memory) < to && number(range.memory) + range.length > from) {
        found = &one;
        return true;
      }
  return false;
}

// Memory from `from` to `to` is given back by `call`.
void ends(const char *call, std::uintptr_t from, std::uintptr_t to) {
  const Locked lock;
  for (const auto &[address, mr] : all<Mr>()) {
    const std::uintptr_t begin = number(mr->memory), end = begin + mr->length;
    if (!mr->memory || begin >= to || end <= from || mr->pid != getpid())
      continue;
    const Posted *posted = nullptr;
    std::string queue;
    for (const auto &[at, qp] : all<Qp>())
      if (!posted && (is_in_flight(qp->sends, from, to, posted) ||
                      is_in_flight(qp->receives, from, to, posted)))
        queue = qp->name;
    for (const auto &[at, srq] : all<Srq>())
      if (!posted && is_in_flight(srq->receives, from, to, posted))
        queue = srq->name;
    if (posted)
      report(rules::freed_in_flight,
             print("%s ends the memory of %s wr_id %llu, which is posted to %s", call, posted->what,
                   static_cast<unsigned long long>(posted->wr_id), queue.c_str()),
             mr->name, {{"made", mr->made}, {"posted", posted->site}});
    else if (from <= begin && end <= to) // a region may hold parts of other blocks
      report(rules::freed_registered,
             print("%s ends the memory of %s, which is still registered", call, mr->name.c_str()),
             mr->name, mr->history());
    return;
  }
}

// ---- pages of posted receives

// Read by the signal handler without a lock: so of fixed size.
constexpr std::size_t most_pages = 1024;
std::atomic<std::uintptr_t> protected_from[most_pages], protected_to[most_pages];
struct sigaction before;

void on_fault(int signal, siginfo_t *info, void *context) {
  const std::uintptr_t at = number(info->si_addr);
  for (std::size_t i = 0; i < most_pages; ++i) {
    const std::uintptr_t from = protected_from[i], to = protected_to[i];
    if (!from || at < from || at >= to)
      continue;
    mprotect(reinterpret_cast<void *>(from), to - from, PROT_READ | PROT_WRITE);
    protected_from[i] = 0;
    const Site site = Site::here();
    report(rules::read_early,
           print("byte %zu of a posted receive's whole pages is used", at - from),
           "a posted receive", {}, &site);
    return; // the access is done again
  }
  if (before.sa_flags & SA_SIGINFO && before.sa_sigaction)
    before.sa_sigaction(signal, info, context);
  else { // as if we were not here
    sigaction(SIGSEGV, &before, nullptr);
  }
}

} // namespace

std::uint64_t checksum(const char *memory, std::uint64_t length) {
  length = std::min(length, looked_at);
  std::uint64_t sum = 0x9e3779b97f4a7c15 ^ length;
  for (; length >= 8; memory += 8, length -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory, sizeof word);
    sum = (sum ^ word) * 0xff51afd7ed558ccd;
    sum ^= sum >> 32;
  }
  for (; length; ++memory, --length)
    sum = (sum ^ static_cast<unsigned char>(*memory)) * 0x100000001b3;
  return sum;
}

void note_region(const char *memory, std::uint64_t length) {
  low = std::min<std::uintptr_t>(low, number(memory));
  high = std::max<std::uintptr_t>(high, number(memory) + length);
}

bool protects() {
  static const bool it = [] {
    const char *wanted = std::getenv("RDMALINT_PROTECT");
    if (!wanted || *wanted != '1')
      return false;
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return !sigaction(SIGSEGV, &action, &before);
  }();
  return it;
}

void protect(Range &range) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t from = (number(range.memory) + page - 1) / page * page;
  const std::uintptr_t to = (number(range.memory) + range.length) / page * page;
  if (!range.memory || from >= to)
    return;
  for (std::size_t i = 0; i < most_pages; ++i)
    if (!protected_from[i]) {
      protected_to[i] = to;
      protected_from[i] = from;
      range.is_protected = !mprotect(reinterpret_cast<void *>(from), to - from, PROT_NONE);
      if (!range.is_protected)
        protected_from[i] = 0;
      return;
    }
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
  if (memory)
    note_region(its.memory, its.length);
}

} // namespace lint

#if !defined(__SANITIZE_ADDRESS__)

namespace {

template <typename Function> Function *real(std::atomic<Function *> &kept, const char *name) {
  Function *its = kept.load(std::memory_order_acquire);
  if (!its) {
    const lint::Own guard; // dlsym() may free memory
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
  if (lint::Own::active() && !real_free.load()) // inside dlsym(): lost, and that is little
    return;
  const auto call = real(real_free, "free");
  // A block that begins before the first region may hold it.
  if (memory && !lint::Own::active() && lint::number(memory) < lint::high &&
      lint::number(memory) + malloc_usable_size(memory) > lint::low) {
    const lint::Own guard;
    lint::ends("free", lint::number(memory), lint::number(memory) + malloc_usable_size(memory));
  }
  call(memory);
}

int munmap(void *memory, std::size_t length) noexcept {
  const auto call = real(real_munmap, "munmap");
  if (!lint::Own::active() && lint::number(memory) < lint::high &&
      lint::number(memory) + length > lint::low) {
    const lint::Own guard;
    lint::ends("munmap", lint::number(memory), lint::number(memory) + length);
  }
  return call(memory, length);
}

} // extern "C"

#endif

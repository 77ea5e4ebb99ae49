// SPDX-License-Identifier: MIT
// Preloaded into a server or a client, it holds the first registration of a megabyte or more until
// a line comes in on standard input: a moment in which the test checks whether the rest goes on.

#include "breakpoint.hpp"

#include <atomic>
#include <dlfcn.h>
#include <infiniband/verbs.h>

#undef ibv_reg_mr

namespace {

void hold(size_t length) {
  static std::atomic<bool> has_held = false;
  if (length >= 1 << 20 && !has_held.exchange(true))
    wait_at_breakpoint();
}

} // namespace

extern "C" ibv_mr *ibv_reg_mr(ibv_pd *pd, void *address, size_t length, int access) {
  static const auto real = reinterpret_cast<decltype(&ibv_reg_mr)>(dlsym(RTLD_NEXT, "ibv_reg_mr"));
  hold(length);
  return real(pd, address, length, access);
}

extern "C" ibv_mr *ibv_reg_mr_iova2(ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                    unsigned access) {
  static const auto real =
      reinterpret_cast<decltype(&ibv_reg_mr_iova2)>(dlsym(RTLD_NEXT, "ibv_reg_mr_iova2"));
  hold(length);
  return real(pd, address, length, iova, access);
}

// SPDX-License-Identifier: MIT
// The real function behind one that this library puts itself in front of.
#pragma once

#include <cerrno>
#include <cstring>
#include <dlfcn.h>

namespace preload {

// dlsym() takes a symbol's default version: IBVERBS_1.1 of what is IBVERBS_1.0 for programs of 2006
// as well. exports.map sees to it that those do not come here.
template <typename Function> Function *next(const char *name) {
  const int before = errno;
  void *found = dlsym(RTLD_NEXT, name);
  if (!found) { // it is in a library of a plugin that the program has loaded, as Python does
    const char *library = std::strncmp(name, "rdma_", 5) ? "libibverbs.so.1" : "librdmacm.so.1";
    if (void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
      found = dlsym(handle, name);
  }
  errno = before;
  return reinterpret_cast<Function *>(found);
}

} // namespace preload

// Once in each function: `static const auto real = REAL(ibv_alloc_pd);`
#define REAL(function) preload::next<decltype(::function)>(#function)

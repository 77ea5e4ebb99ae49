// SPDX-License-Identifier: MIT
#include "rdmacommon/handles.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace rdmacommon::deleters {

void report(int rc, const char *verb) noexcept {
  if (rc != 0)
    std::fprintf(stderr, "%s: %s\n", verb, std::strerror(rc > 0 ? rc : errno));
}

} // namespace rdmacommon::deleters

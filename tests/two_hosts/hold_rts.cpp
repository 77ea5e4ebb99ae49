// SPDX-License-Identifier: MIT
// Preloaded into a client, it holds the transition to RTS until a line comes in on standard input:
// a moment for a test to change the world in.

#include "breakpoint.hpp"

#include <dlfcn.h>
#include <infiniband/verbs.h>

extern "C" int ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  static const auto real =
      reinterpret_cast<decltype(&ibv_modify_qp)>(dlsym(RTLD_NEXT, "ibv_modify_qp"));
  if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RTS)
    wait_at_breakpoint();
  return real(qp, attr, mask);
}

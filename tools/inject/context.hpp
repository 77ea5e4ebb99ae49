// SPDX-License-Identifier: MIT
// The verbs that are inline functions in verbs.h, and so in the program itself: they call through
// pointers in the context, the extended QP and the extended CQ, which are replaced here.
#pragma once

#include <infiniband/verbs.h>

namespace inject {

void wrap_context(ibv_context *context);

// A completion that fails moves its QP to the error state, so the QPs are known by their numbers.
void remember(ibv_qp *qp);
void forget(const ibv_qp *qp);

} // namespace inject

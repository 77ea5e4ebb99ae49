// SPDX-License-Identifier: MIT
// The pointers of a context through which the inline functions of verbs.h call. Included once by
// each library, after its overloads of around() for them.
#pragma once

#include "interpose.hpp"
#include "object_registry.hpp"

namespace {

// The pointers that verbs.h calls through, as the provider set them. Each provider has its own.
struct Originals {
#define OPERATION(pointer, ...) decltype(ibv_context_ops::pointer) pointer = nullptr;
#define OPERATION_EX(pointer, ...) decltype(verbs_context::pointer) pointer = nullptr;
#include "calls.def"
};

#define OPERATION(pointer, context, result, function, role, fails, error, parameters, arguments)   \
  result pointer parameters {                                                                      \
    const auto real = preload::kept<Originals>().find(context)->pointer;                           \
    return around(preload::call::function{}, [&] { return real arguments; } REST arguments);       \
  }
#define OPERATION_EX OPERATION
#include "calls.def"

// Puts this library in front of the operations of a context.
void replace_operations(ibv_context *context) {
  Originals &originals = preload::kept<Originals>().renew(context);
#define OPERATION(pointer, ...)                                                                    \
  if (context->ops.pointer) { /* the provider has it */                                            \
    originals.pointer = context->ops.pointer;                                                      \
    context->ops.pointer = pointer;                                                                \
  }
// verbs_get_ctx_op() says whether this libibverbs knows the operation at all.
#define OPERATION_EX(pointer, ...)                                                                 \
  if (verbs_context *verbs = verbs_get_ctx_op(context, pointer)) {                                 \
    originals.pointer = verbs->pointer;                                                            \
    verbs->pointer = pointer;                                                                      \
  }
// GCC 14 takes the context for one at address 0 here, in an inline function of libibverbs: a false
// alarm.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Warray-bounds"
#include "calls.def"
#pragma GCC diagnostic pop
}

} // namespace

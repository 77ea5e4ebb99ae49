// SPDX-License-Identifier: MIT
// Counts each call that has no overload of its own, and fails it if a rule says so.
#pragma once

#include "calls.hpp"
#include "inject.hpp"

#include <tuple>

namespace inject {

namespace call = preload::call;
using preload::Fails;
using preload::Role;

// The object that a call has made.
template <typename Kind, typename Result, typename... Args>
const void *made_by(Kind, Result made, Args...) {
  return made;
}
inline const void *made_by(call::rdma_create_id, int, rdma_event_channel *, rdma_cm_id **id, void *,
                           rdma_port_space) {
  return *id;
}
inline const void *made_by(call::rdma_create_ep, int, rdma_cm_id **id, rdma_addrinfo *, ibv_pd *,
                           ibv_qp_init_attr *) {
  return *id;
}
inline const void *made_by(call::rdma_get_request, int, rdma_cm_id *, rdma_cm_id **id) {
  return *id;
}
// An id may get a new queue pair, and a new SRQ, but never has two.
template <typename... Args>
const void *made_by(call::rdma_create_qp, int, rdma_cm_id *id, Args...) {
  return &id->qp;
}
template <typename... Args>
const void *made_by(call::rdma_create_qp_ex, int, rdma_cm_id *id, Args...) {
  return &id->qp;
}
template <typename... Args>
const void *made_by(call::rdma_create_srq, int, rdma_cm_id *id, Args...) {
  return &id->srq;
}
template <typename... Args>
const void *made_by(call::rdma_create_srq_ex, int, rdma_cm_id *id, Args...) {
  return &id->srq;
}

// Counts the call. @return the error number with which it has to fail; 0: it does not
inline int failure(Call &call, int default_error) {
  const Verdict verdict = call.count(default_error);
  if (!verdict.fails)
    return 0;
  call.report(name_of(verdict.error));
  return verdict.error;
}

// @param name by which the rules know the call
template <typename Kind, typename Real, typename... Args>
auto counted(Kind kind, const char *name, Real real, Args... arguments) {
  Call call(name);
  if constexpr (Kind::fails == Fails::never) {
    if constexpr (Kind::role == Role::ends)
      call.ended(std::get<0>(std::tuple(arguments...)));
    real();
  } else {
    using Result = decltype(real());
    const int failed = failure(call, Kind::error);
    // A call that ends something is made before it fails, so that nothing is left because of us.
    if (failed && Kind::role != Role::ends && Kind::role != Role::undoes)
      return preload::failed_with<Result>(kind, failed);
    const Result result = real();
    if (preload::has_worked(kind, result)) {
      if constexpr (Kind::role == Role::makes)
        call.made(made_by(kind, result, arguments...));
      else if constexpr (Kind::role == Role::ends)
        call.ended(std::get<0>(std::tuple(arguments...)));
    }
    return failed ? preload::failed_with<Result>(kind, failed) : result;
  }
}

template <typename Kind, typename Real, typename... Args>
auto around(Kind kind, Real real, Args... arguments) {
  return counted(kind, Kind::name, real, arguments...);
}

} // namespace inject

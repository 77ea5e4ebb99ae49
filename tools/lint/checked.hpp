// SPDX-License-Identifier: MIT
// Checks the object that a call uses or ends. A file includes this after its overloads of made(),
// which tell the rules what a call has done, and of why_failed(), which look for the reason of a
// failure.
#pragma once

#include "calls.hpp"
#include "failed_calls.hpp"
#include "tracked.hpp"

#include <cerrno>

namespace lint {

using preload::Fails;
using preload::Role;

template <typename Kind, typename... Args> void made(Kind, Args...) {}

template <typename Kind, typename... Args> std::string why_failed(Kind, int, Args...) {
  return "";
}

template <typename Type, typename... Types>
constexpr bool is_one_of = (std::is_same_v<Type, Types> || ...);

// Calls that wait for an event, in a thread that does something else, too.
template <typename Kind>
constexpr bool waits =
    is_one_of<Kind, preload::call::ibv_get_cq_event, preload::call::rdma_get_cm_event>;

// Failures that are part of a normal run: a program walks through a table until its end, and takes
// the events of a descriptor that does not block until there is none.
template <typename Kind> bool is_normal(Kind, int error) {
  using namespace preload;
  if constexpr (is_one_of<Kind, call::ibv_query_gid, call::_ibv_query_gid_ex, call::ibv_query_pkey>)
    return true;
  if (std::is_same_v<Kind, call::rdma_notify> && error == EISCONN)
    return true;
  if (error == EAGAIN) // elsewhere it is a cgroup's limit
    return waits<Kind> || is_one_of<Kind, call::ibv_get_async_event, call::rdma_get_request>;
  return error == EINTR;
}

// Reports a call that has failed. errno still has its error number, if the call sets it.
template <typename Kind, typename Result, typename... Args>
void note_failure(Kind kind, const char *name, Result result, Args... arguments) {
  int error = errno;
  if constexpr (Kind::fails == Fails::error_number)
    if (result != -1) // some providers return that, and set errno
      error = result;
  if constexpr (std::is_same_v<Kind, preload::call::ibv_poll_cq>)
    error = EIO; // providers return a negative number, and do not set errno
  if constexpr (waits<Kind>)
    if (error == EINTR)
      interrupted(name);
  if (!is_normal(kind, error))
    failed(name, error, why_failed(kind, error, arguments...));
}

inline const void *first_of() {
  return nullptr;
}
template <typename... Args> const void *first_of(const void *first, Args...) {
  return first;
}
template <typename... Args> const void *first_of(int, Args...) {
  return nullptr;
}

// Returns true for a null pointer to the attributes of an object.
template <typename Argument> bool is_null_attribute([[maybe_unused]] Argument argument) {
  if constexpr (is_one_of<Argument, ibv_qp_init_attr *, ibv_qp_init_attr_ex *, ibv_qp_attr *,
                          ibv_srq_init_attr *, ibv_srq_init_attr_ex *, ibv_srq_attr *,
                          ibv_ah_attr *, ibv_cq_init_attr_ex *>)
    return !argument;
  else
    return false;
}

// Reports a null pointer that the library would follow, and so crash.
//
// @return whether the call must not be made
template <typename Kind> bool refuses_null(Kind, const char *) {
  return false;
}
template <typename Kind, typename First, typename... Rest>
bool refuses_null(Kind, const char *name, [[maybe_unused]] First first, Rest... rest) {
  using namespace preload;
  const char *null = nullptr;
  // rdma_create_ep() makes its first argument, and rdma_create_id() needs no channel.
  if constexpr (!is_one_of<Kind, call::rdma_create_ep, call::rdma_create_id>) {
    if ((is_null_attribute(rest) || ...))
      null = "the pointer to the attributes";
    if constexpr (std::is_pointer_v<First> && !is_one_of<First, int *, const char *>)
      if (!first)
        null = "its first argument";
  }
  if (null)
    report_null(name, null);
  return null;
}

// Refuses a call on an object that is gone.
template <typename Result, typename Kind> Result refused([[maybe_unused]] Kind kind) {
  if constexpr (Kind::fails != Fails::never)
    return preload::failed_with<Result>(kind, EINVAL);
}

// Makes the real call, and gives `then` its result, or 0. errno stays as the call has left it.
template <typename Kind, typename Real, typename Then> auto called(Kind, Real real, Then then) {
  if constexpr (Kind::fails == Fails::never) {
    real();
    then(0);
  } else {
    const auto result = real();
    const int before = errno;
    then(result);
    errno = before;
    return result;
  }
}

// @param name by which a report names the call
template <typename Kind, typename Real, typename... Args>
auto checked(Kind kind, const char *name, Real real, Args... arguments) {
  using Result = decltype(real());
  if (refuses_null(kind, name, arguments...))
    return refused<Result>(kind);
  if constexpr (Kind::role == Role::ends) {
    Destruction end(name, first_of(arguments...));
    if (end.refused())
      return refused<Result>(kind);
    return called(kind, real, [&](auto result) {
      if constexpr (Kind::fails == Fails::never)
        end.ended(0);
      else if (const bool worked = preload::has_worked(kind, result);
               !end.ended(!worked) && !worked)
        note_failure(kind, name, result, arguments...);
    });
  } else {
    const Use use(name, first_of(arguments...));
    if (use.refused())
      return refused<Result>(kind);
    if constexpr (waits<Kind>)
      called_again(name);
    return called(kind, real, [&](auto result) {
      if constexpr (Kind::fails != Fails::never) {
        if (preload::has_worked(kind, result))
          made(kind, result, arguments...);
        else
          note_failure(kind, name, result, arguments...);
      }
    });
  }
}

template <typename Kind, typename Real, typename... Args>
auto around(Kind kind, Real real, Args... arguments) {
  if constexpr (Kind::role == Role::asks) {
    if (refuses_null(kind, Kind::name, arguments...))
      return refused<decltype(real())>(kind);
    return called(kind, real, [&](auto result) {
      if constexpr (Kind::fails != Fails::never)
        if (!preload::has_worked(kind, result))
          note_failure(kind, Kind::name, result, arguments...);
    });
  } else {
    return checked(kind, Kind::name, real, arguments...);
  }
}

} // namespace lint

// SPDX-License-Identifier: MIT
// Checks the object that a call uses or ends. A file includes this after its overloads of made(),
// which tell the rules what a call has done.
#pragma once

#include "calls.hpp"
#include "tracked.hpp"

#include <cerrno>

namespace lint {

using preload::Fails;
using preload::Role;

template <typename Kind, typename... Args> void made(Kind, Args...) {}

inline const void *first_of() {
  return nullptr;
}
template <typename... Args> const void *first_of(const void *first, Args...) {
  return first;
}
template <typename... Args> const void *first_of(int, Args...) {
  return nullptr;
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
  if constexpr (Kind::role == Role::ends) {
    Destruction end(name, first_of(arguments...));
    if (end.refused())
      return refused<Result>(kind);
    return called(kind, real, [&](auto result) {
      if constexpr (Kind::fails == Fails::never)
        end.ended(0);
      else
        end.ended(!preload::has_worked(kind, result));
    });
  } else {
    const Use use(name, first_of(arguments...));
    if (use.refused())
      return refused<Result>(kind);
    return called(kind, real, [&](auto result) {
      if constexpr (Kind::fails != Fails::never) {
        if (preload::has_worked(kind, result))
          made(kind, result, arguments...);
      }
    });
  }
}

template <typename Kind, typename Real, typename... Args>
auto around(Kind kind, Real real, Args... arguments) {
  if constexpr (Kind::role == Role::asks)
    return real();
  else
    return checked(kind, Kind::name, real, arguments...);
}

} // namespace lint

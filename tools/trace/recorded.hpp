// SPDX-License-Identifier: MIT
// Makes an event of each call. A file includes this after its overloads of words(), for a call's
// arguments, and of made(), for its result.
#pragma once

#include "calls.hpp"
#include "event.hpp"
#include "names.hpp"

namespace trace {

// By default the label of what the call is about.
template <typename Kind, typename... Args> std::string words(Kind, Args...) {
  return "";
}
template <typename Kind, typename Object, typename... Args>
std::string words(Kind, Object *about, Args...) {
  return Kind::role == preload::Role::makes ? "" : label(about);
}
template <typename Kind, typename Result, typename... Args>
std::string made(Event &, Kind, Result, Args...) {
  return "";
}

// Notes the end of a call. @return what it got
template <typename Kind, typename Result> Result ended(Event &event, Kind, Result result) {
  if constexpr (Kind::fails == preload::Fails::null)
    return event.null(result);
  else if constexpr (Kind::fails == preload::Fails::minus_one)
    return event.minus_one(result);
  else
    return event.errno_returned(result);
}

template <typename Kind, typename Real, typename... Args>
auto recorded(Event &event, Kind kind, Real real, Args... arguments) {
  event.text([&] { return words(kind, arguments...); });
  if constexpr (Kind::fails == preload::Fails::never) {
    real();
    event.ended();
  } else {
    const auto result = ended(event, kind, real());
    if (preload::has_worked(kind, result))
      event.result([&] { return made(event, kind, result, arguments...); });
    return result;
  }
}

template <typename Kind, typename Real, typename... Args>
auto around(Kind kind, Real real, Args... arguments) {
  if constexpr (Kind::role == preload::Role::asks) {
    return real();
  } else {
    Event event(Kind::name);
    return recorded(event, kind, real, arguments...);
  }
}

} // namespace trace

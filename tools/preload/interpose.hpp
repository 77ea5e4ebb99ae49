// SPDX-License-Identifier: MIT
// The functions that a program calls in place of those of calls.def. After the overloads of
// around(), a library writes one of these, or both, in extern "C":
//
//     #define CALL INTERPOSE
//     #define CM_CALL INTERPOSE
//     #include "calls.def"
#pragma once

#include "calls.hpp"

#define REST(...) __VA_OPT__(, ) __VA_ARGS__
#define INTERPOSE(result, function, role, fails, error, parameters, arguments)                     \
  result function parameters {                                                                     \
    static const auto real = REAL(function);                                                       \
    return around(preload::call::function{}, [&] { return real arguments; } REST arguments);       \
  }

// SPDX-License-Identifier: MIT
// A type for each call of calls.def, by which a library says what it does around that call:
//
//     template <typename Kind, typename Real, typename... Args>
//     auto around(Kind kind, Real real, Args... arguments); // around all others
//     template <typename Real>
//     int around(call::ibv_destroy_qp kind, Real real, ibv_qp *qp); // around this one
//
// `real()` makes the real call. Behind these overloads, interpose.hpp defines the functions that
// the program calls in place of the real ones.
#pragma once

#include "next.hpp"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <type_traits>

// verbs.h wraps these in macros for its users.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace preload {

enum class Role { asks, uses, makes, ends, undoes };
enum class Fails { null, error_number, minus_one, never };

template <Role its_role, Fails its_way, int its_error> struct Call {
  static constexpr Role role = its_role;
  static constexpr Fails fails = its_way;
  static constexpr int error = its_error; // with which it can fail
};

namespace call {
#define CALL(result, function, role, fails, error, parameters, arguments)                          \
  struct function : Call<Role::role, Fails::fails, error> {                                        \
    static constexpr const char *name = &#function[#function[0] == '_'];                           \
  };
#define CM_CALL CALL
#define OPERATION(pointer, context, ...) CALL(__VA_ARGS__)
#define OPERATION_EX(pointer, context, ...) CALL(__VA_ARGS__)
#include "calls.def"
} // namespace call

// The result of a call that fails with this error number. Sets errno where the call would.
template <typename Result, typename Call> Result failed_with(Call, int error) {
  if constexpr (Call::fails == Fails::error_number) {
    return error;
  } else {
    errno = error;
    if constexpr (Call::fails == Fails::null)
      return nullptr;
    else
      return -1;
  }
}

// Returns true if a call with this result has worked. ibv_poll_cq() returns a count.
template <typename Call, typename Result> bool has_worked(Call, Result result) {
  if constexpr (Call::fails == Fails::null)
    return result != nullptr;
  else if constexpr (Call::fails == Fails::minus_one)
    return result >= 0;
  else
    return result == 0;
}

// ibv_reg_mr_iova2 stands for the call that the program has in its source.
inline const char *name_of(call::ibv_reg_mr_iova2, const void *address, std::uint64_t iova) {
  return iova == reinterpret_cast<std::uintptr_t>(address) ? "ibv_reg_mr" : "ibv_reg_mr_iova";
}

} // namespace preload

// SPDX-License-Identifier: MIT
/// @file
/// Checked calls: one function for each way in which verbs and rdma_cm report an error.
///
/// The verbs have five conventions, and the man page of each call says which one it follows.
/// Taking the wrong one means missing an error, so each has a name of its own here:
///
/// | convention                | calls, for example                          | helper        |
/// |---------------------------|---------------------------------------------|---------------|
/// | NULL, and errno set       | ibv_open_device, ibv_reg_mr, ibv_create_qp  | check_ptr()   |
/// | the error number returned | ibv_modify_qp, ibv_post_send                | check_rc()    |
/// | -1, and errno set         | ibv_query_gid, rdma_cm, the socket calls    | check_errno() |
/// | a negative count          | ibv_poll_cq                                 | check_count() |
/// | ibv_wc::status            | every completion                            | check_wc()    |
///
/// Written out in lesson 01_hello_device, except where another one is named.
#pragma once

#include <infiniband/verbs.h>

#include <stdexcept>
#include <string>

namespace rdmacommon {

/// The line of code that made a call. As a default argument it is the caller's line.
///
/// Most functions of this library take one as their last argument, so that an error names a line of
/// the program and not one of the library. Leave it out. A helper of your own can take one in the
/// same way and pass it on:
///
///     void restart(ibv_qp *qp, rdmacommon::Where where = rdmacommon::Where::here()) {
///       ibv_qp_attr reset{.qp_state = IBV_QPS_RESET};
///       rdmacommon::check_rc(ibv_modify_qp(qp, &reset, IBV_QP_STATE), "ibv_modify_qp", where);
///     }
class Where {
public:
  const char *file; ///< Path as the compiler was given it; lives as long as the program.
  int line;         ///< Counted from 1.

  /// The caller's place, as a default argument. Do not pass arguments.
  // std::source_location would do, but clang 14, which is Debian 12's, does not have it.
  static constexpr Where here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return Where(file, line);
  }

private:
  constexpr Where(const char *in_file, int at_line) : file(in_file), line(at_line) {}
};

/// A call that failed: what() names the call, the reason and the place, and, where one is known,
/// adds a line that starts with "hint:" and ends in an anchor of lessons/troubleshooting.md.
///
///     if (wc.byte_len < 24) // what() is "the message: it is too short (main.cpp:52)"
///       throw rdmacommon::Error("the message", "it is too short");
class Error : public std::runtime_error {
public:
  /// @param call   what was tried, as the reader would name it: "ibv_modify_qp(RTR)"
  /// @param reason why it failed, in words
  /// @param hint   what to do about it; empty where nothing useful is known
  /// @param where  the line that made the call
  Error(const std::string &call, const std::string &reason, const std::string &hint = "",
        Where where = Where::here());
  /// Makes an error without a hint.
  Error(const std::string &call, const std::string &reason, Where where)
      : Error(call, reason, "", where) {}
};

/// A missing feature of the device, or of a library that the program was built with. run_main()
/// ends with exit status 77 for it, which Meson and others take for "skipped". Introduced in lesson
/// 07_atomics.
///
///     if (attr.atomic_cap == IBV_ATOMIC_NONE)
///       throw rdmacommon::Unsupported("this device has no atomics");
class Unsupported : public std::runtime_error {
public:
  using std::runtime_error::runtime_error; ///< Takes what is missing, in one line.
};

/// Throws the Error for `call` having failed with the error number `error`, hint included.
[[noreturn]] void throw_errno(int error, const char *call, Where where = Where::here());

// [check-ptr]
/// Checks a call that returns NULL and sets errno.
/// @return the pointer, never null; ownership stays as the call defines it
/// @throws Error if `pointer` is null
template <typename T> T *check_ptr(T *pointer, const char *call, Where where = Where::here()) {
  if (pointer == nullptr)
    throw_errno(errno, call, where);
  return pointer;
}
// [check-ptr]

/// Checks a call that returns 0 or the error number itself. Some providers return the number
/// negated, or return -1 and set errno; check_rc() understands those as well.
/// @throws Error if `rc` is not 0
void check_rc(int rc, const char *call, Where where = Where::here());

/// Checks a call that returns -1 and sets errno.
/// @return `rc`, which is not negative: a file descriptor, a length, or 0
/// @throws Error if `rc` is negative
int check_errno(int rc, const char *call, Where where = Where::here());

/// Checks ibv_poll_cq(): a negative count is a failure, and 0 is an empty queue, which is no error.
/// @return the number of completions
/// @throws Error if `count` is negative
int check_count(int count, const char *call, Where where = Where::here());

/// Throws unless the work request of a completion succeeded. In a failed completion, only wr_id,
/// status, qp_num and vendor_err are valid (ibv_poll_cq(3)), so nothing else goes into the message.
/// Written out in lesson 02_send_recv.
/// @param wc   a completion that ibv_poll_cq() filled in
/// @param what the work request that it completes, in words: "the SEND"
/// @throws Error if wc.status is not IBV_WC_SUCCESS
void check_wc(const ibv_wc &wc, const char *what, Where where = Where::here());

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// Counts the calls that a program makes, and decides which of them fail. README.md says what the
// environment variables mean.
#pragma once

#include "next.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

namespace inject {

// Whether the environment asks for anything. Without that, every function of this library only
// calls the real one.
bool active();

enum class How { error, completion, negative, lost, delayed };

// The result of the rules for one call.
struct Verdict {
  bool fails = false;
  How how = How::error;
  int error = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
};

// Lives as long as the program is in a wrapped function. A wrapped function that librdmacm,
// libibverbs or this library calls meanwhile is not a call of the program, and is never counted.
class Call {
public:
  explicit Call(const char *function);
  ~Call();
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  // Counts the call, or the completion or event that it returns, and lists it.
  // @param default_error what a failure reports if the rule does not say
  Verdict count(int default_error);
  // Prints the line that says what fails.
  void report(const char *what) const;

  // The program made, or ended, an object by this call. The report at exit names what remains.
  void made(const void *object) const;
  void ended(const void *object) const;

private:
  const char *function_;
  unsigned long number_ = 0; // of the last one counted
  bool outermost_;
};

// The name of an error number, for the line on stderr.
const char *name_of(int error);
const char *name_of(ibv_wc_status status);

// ---- one function for each way in which a call reports an error. `real` makes the real call.

// Counts the call. @return the error number with which it has to fail; 0: it does not
inline int failure(Call &call, int default_error) {
  const Verdict verdict = call.count(default_error);
  if (!verdict.fails)
    return 0;
  call.report(name_of(verdict.error));
  return verdict.error;
}

template <typename Real> auto null_and_errno(const char *function, int error, Real real) {
  Call call(function);
  if (const int failed = failure(call, error)) {
    errno = failed;
    return decltype(real())(nullptr);
  }
  auto *made = real();
  if (made)
    call.made(made);
  return made;
}

template <typename Real> int returned_errno(const char *function, int error, Real real) {
  Call call(function);
  const int failed = failure(call, error);
  return failed ? failed : real();
}

template <typename Real> int minus_one(const char *function, int error, Real real) {
  Call call(function);
  if (const int failed = failure(call, error)) {
    errno = failed;
    return -1;
  }
  return real();
}

// A call that ends an object: the real one is made first, so that nothing is left because of us.
template <typename Real>
int ends(const char *function, int error, const void *object, bool by_errno, Real real) {
  Call call(function);
  const int failed = failure(call, error), rc = real();
  if (!rc)
    call.ended(object);
  if (!failed)
    return rc;
  if (!by_errno)
    return failed;
  errno = failed;
  return -1;
}

} // namespace inject

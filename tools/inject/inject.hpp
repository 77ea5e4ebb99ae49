// SPDX-License-Identifier: MIT
// Counts the calls that a program makes, and decides which of them fail. README.md says what the
// environment variables mean.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace inject {

// Returns true if the environment asks for anything. If it does not, every function of this library
// only calls the real one.
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
  unsigned long number_ = 0; // number of the last call that was counted
  bool outermost_;
};

// The name of an error number, for the line on stderr.
const char *name_of(int error);
const char *name_of(ibv_wc_status status);

} // namespace inject

// SPDX-License-Identifier: MIT
// One recorded call: from the moment before it to the moment after, written as one line of JSON.
//
//   pid, tid     who called
//   begin, end   ns since 1970 (CLOCK_REALTIME), just before and just after the real call
//   depth        0: called by the program; 1: by librdmacm or another recorded call on its behalf;
//   …
//   call         the function's name
//   text         its arguments, for people
//   result       what came of it, for people; "" for plain success
//   failed       whether it failed
//
// and for tools, where a call has it: qp, srq, cq, wrs, bad, wcs, empty, state, path_mtu, rq_psn,
// sq_psn, dest_qp, type, sq_sig_all, addr, length, lkey, rkey, event, status, id, tcp, bytes,
// receives. tools/lab/wire/timeline.py reads them. Lines stand in the order in which the calls
// ended.
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <exception>
#include <string>

namespace trace {

// Returns true if VERBS_TRACE names a file. Without it every function of this library only calls
// the real one.
bool on();

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string print(const char *format, ...);

// Does what the program must not notice: errno stays, and nothing that is thrown gets out. Only
// memory can run out.
template <typename Work> void quietly(Work work) {
  const int before = errno;
  try {
    work();
  } catch (const std::exception &) { // the trace says less
  }
  errno = before;
}

// A JSON object or array that is being written.
class Json {
public:
  Json &number(const char *key, std::uint64_t value);
  Json &flag(const char *key, bool value);
  Json &string(const char *key, const std::string &value);
  Json &raw(const char *key, const std::string &json);
  std::string object() const { return "{" + members_ + "}"; }

private:
  std::string members_;
};

// Between its construction and its destruction lies the call; the line is written at the end. Not
// for sharing.
//
// What is said about the call is given as lambdas: they run only if there is a trace, and nothing
// that they throw gets out into the program. To it the call looks as without us: the same result,
// the same errno.
class Event {
public:
  explicit Event(const char *call);
  ~Event();
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  // The five ways in which verbs and rdma_cm say that they failed: each notes the end, and returns
  // what it got.
  int errno_returned(int error);           // ibv_modify_qp and most others: 0 or an errno
  int minus_one(int status);               // rdma_cm and ibv_get_cq_event: -1 and errno
  template <typename T> T *null(T *made) { // ibv_create_*, ibv_alloc_*: NULL and errno
    made ? ended() : failed_with_errno();
    return made;
  }
  int negative(int count); // ibv_poll_cq: how many, or below 0
  void ended();            // void functions

  template <typename Words> void text(Words words) {
    note([&] { text_ = words(); });
  }
  template <typename Words> void result(Words words) {
    note([&] { result_ = words(); });
  }
  template <typename Fill> void json(Fill fill) { // adds what else the event has
    note([&] { fill(json_); });
  }
  // Whatever else there is to do if the call is recorded.
  template <typename Work> void note(Work work) {
    if (forgotten_)
      return;
    quietly(work);
    if (!ended_)
      start(); // the call begins after what was said about it
  }
  void forget() { forgotten_ = true; } // nothing worth a line has happened

  // The time when the program's call that this thread is in began. 0 if it is in none.
  static std::uint64_t outermost();

private:
  void start();
  void failed_with_errno();
  void fail(int error);
  void write_line() const;

  const char *call_;
  const Event *outer_; // on this thread
  std::uint64_t begin_ = 0, end_ = 0;
  int errno_ = 0;
  bool ended_ = false, failed_ = false, forgotten_;
  std::string text_, result_;
  Json json_;
};

} // namespace trace

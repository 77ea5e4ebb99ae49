// SPDX-License-Identifier: MIT
/// @file
/// The types that both sides of a shared client use: how to wait, where log lines go, and what has
/// been counted.
///
/// Written out in lesson 23_shared_client.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

/// @namespace rdmashared
/// A client that many processes of a host share, and its server, over RDMA.
///
/// A whole server, as `./lab new` copies it:
/// @include new/server.cpp
///
/// A whole client:
/// @include new/client.cpp
///
/// Threads, and what blocks:
///
/// - **Server**: run() belongs to one thread, and blocks until the end. Call everything else from
///   any thread. The destructor waits for the handlers that run. metrics() takes a second at most
///   for each thread of the server.
/// - **Request**: belongs to one thread at a time, and can be moved to another one. Nothing blocks.
/// - **Sender**: Call everything from any thread, apart from the destructor. wait_connected()
///   blocks until its limit; metrics(), a second at most for each thread of the sender; the
///   destructor, as long as a lookup of a server's name takes.
/// - **Caller**: Call everything from any thread, apart from the destructor. request(), call() and
///   post() block until RequestOptions::limit; wait_any(), wait_connected() and run_ready(), until
///   their limit; join(), up to twice its limit: to connect, and to get an answer. Nothing else
///   blocks.
/// - **Pending**: belongs to one thread at a time, and can be moved to another one. wait() and
///   take() block until RequestOptions::limit.
///
/// Rules for all of these classes:
///
/// - **fork()**: Fork before you make a Sender or a Server. A child that was forked later must not
///   use any of these objects. It may destroy a Pending and a Caller: that does nothing. A child
///   joins by Caller::join(), or by a link (rdmacommon::make_link()), and has an area of its own.
/// - **Signals**: The library installs no handlers. Its threads block all signals but those that a
///   thread raises itself, such as SIGSEGV. A signal handler may call Server::stop(), and nothing
///   else.
/// - **Lifetime**: Destroy a Pending before its Caller, and a Caller before its Sender if both are
///   in one process. A Request may outlive its Server: its answer goes nowhere then.
/// - **Errors**: What becomes of a request is an Outcome. A thread that cannot be made is a
///   std::system_error. Everything else that goes wrong is a rdmacommon::Error.
namespace rdmashared {

/// The way in which a thread waits for a response or a completion.
enum class Waiting {
  poll,     ///< It looks again and again, and uses a whole CPU.
  events,   ///< It sleeps until it is woken.
  adaptive, ///< It looks several times, as long as recent looks found work; then it sleeps.
};

/// The importance of a log line.
enum class Level {
  info,    ///< Nothing is wrong.
  warning, ///< Requests fail, or may fail.
};

/// A function of the program that takes one log line, without a newline at its end; a hint may
/// follow on a second line. The library itself prints nothing. Called by the library's threads, one
/// at a time for each Server and each Sender. It must not throw.
using Log = std::function<void(Level level, std::string_view line)>;

/// The figures of one side of the connections so far.
struct Counts {
  uint64_t messages = 0; ///< Requests that were sent, or answered.
  uint64_t groups = 0;   ///< Groups in which these messages were sent.
  /// Calls of ibv_post_send() and ibv_post_recv(), without the first one of each connection.
  uint64_t posts = 0;
  uint64_t completions = 0; ///< Work completions that were polled.
  uint64_t wakes = 0;       ///< System calls that woke callers, or threads of the server's pool.
  /// Completions with the status "receiver not ready". Always 0, unless there is a defect.
  uint64_t rnr = 0;
  uint64_t sleeps = 0;             ///< Sleeps of the threads that own the connections.
  uint64_t other_calls = 0;        ///< Their other system calls.
  std::array<uint64_t, 9> sizes{}; ///< Groups of 1, 2, 3-4, 5-8, ..., 129-255 messages.
};

} // namespace rdmashared

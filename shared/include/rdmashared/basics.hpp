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

namespace rdmashared {

/// How a thread waits for a response or a completion.
enum class Waiting {
  poll,     ///< It looks again and again, and uses a whole CPU.
  events,   ///< It sleeps until it is woken.
  adaptive, ///< It looks several times, as long as that has paid lately; then it sleeps.
};

/// Takes one line, without a newline at its end; a hint may follow on a second line. The library
/// itself prints nothing. Called by the library's threads, one at a time for each Server and each
/// Sender. It must not throw.
using Log = std::function<void(std::string_view line)>;

/// The figures of one side of the connections so far.
struct Counts {
  uint64_t messages = 0;    ///< Requests that were sent, or answered.
  uint64_t groups = 0;      ///< Groups that these went in.
  uint64_t posts = 0;       ///< Calls of ibv_post_send() and ibv_post_recv().
  uint64_t completions = 0; ///< Work completions that were polled.
  uint64_t wakes = 0;       ///< System calls that woke callers, or threads of the server's pool.
  /// Completions with the status "receiver not ready". Always 0, unless there is a defect.
  uint64_t rnr = 0;
  uint64_t sleeps = 0;             ///< Sleeps of the threads that have the connections.
  uint64_t other_calls = 0;        ///< Their other system calls.
  std::array<uint64_t, 9> sizes{}; ///< Groups of 1, 2, 3-4, 5-8, ..., 129-255 messages.
};

} // namespace rdmashared

// SPDX-License-Identifier: MIT
// Asks until there is an answer, for requests that can be carried out twice.
#pragma once

#include <rdmashared/messages.hpp>

#include <chrono>
#include <thread>

inline bool is_worth_another_try(rdmashared::Outcome outcome) {
  switch (outcome) {
  case rdmashared::Outcome::lost: // the server may have carried it out
  case rdmashared::Outcome::timed_out:
  case rdmashared::Outcome::not_sent: // it has not: try again also if twice does harm
  case rdmashared::Outcome::expired:
  case rdmashared::Outcome::no_room:
    return true;
  default:
    return false;
  }
}

// Gives up at the first failure after `limit`. No event says that a sender without memory has some
// again, so it pauses before each new try.
template <typename Answer, typename Message>
Answer ask_again(rdmashared::Caller &caller, const Message &message,
                 std::chrono::milliseconds limit = std::chrono::seconds(30)) {
  for (const auto end = std::chrono::steady_clock::now() + limit;;)
    try {
      return rdmashared::ask<Answer>(caller, message);
    } catch (const rdmashared::RequestFailed &failure) {
      if (!is_worth_another_try(failure.outcome()) || std::chrono::steady_clock::now() >= end)
        throw;
      caller.wait_connected(std::chrono::seconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

// SPDX-License-Identifier: MIT
// Asks until there is an answer, for requests that can be carried out twice.
#pragma once

#include <rdmashared/messages.hpp>

#include <chrono>

// Sends a request, for up to ten tries. A request that must not be carried out twice is sent again
// after Outcome::not_sent only.
template <typename Answer, typename Message>
Answer ask_again(rdmashared::Caller &caller, const Message &message) {
  for (int left = 10;;)
    try {
      return rdmashared::ask<Answer>(caller, message);
    } catch (const rdmashared::RequestFailed &failure) {
      const bool is_worth_it = failure.outcome() == rdmashared::Outcome::not_sent ||
                               failure.outcome() == rdmashared::Outcome::lost;
      if (!is_worth_it || --left == 0)
        throw;
      caller.wait_connected(std::chrono::seconds(1));
    }
}

// SPDX-License-Identifier: MIT
// Lets the opponents of the shared client wait as the shared client does, if they are asked to.
#pragma once

#include "console.hpp"

#include "epoll_loop.hpp" // IdlePolicy, from the shared client

#include <rdmacommon/options.hpp>

#include <sched.h>

#include <optional>
#include <string>

// The looks of one thread before it sleeps.
class Looks {
public:
  // Adds --waiting. This object outlives the command line.
  explicit Looks(rdmacommon::CommandLine &line) {
    line.add("--waiting", how_, "how both sides wait: poll, events or adaptive [events]",
             waiting_names);
  }

  // After the command line was parsed.
  // @param is_there called as often as looking pays
  // @return what it has returned last; false: sleep
  template <typename IsThere> bool find(IsThere is_there) {
    if (!idle_policy_)
      idle_policy_.emplace(waiting_of(how_));
    int looked = 0;
    bool is_found = false;
    for (; !is_found && looked < idle_policy_->looks(); ++looked) {
      if (looked > 0)
        sched_yield();
      is_found = is_there();
    }
    idle_policy_->note(looked, is_found);
    return is_found;
  }

private:
  std::string how_ = "events";
  std::optional<rdmashared::IdlePolicy> idle_policy_;
};

// SPDX-License-Identifier: MIT
// 16_sharing: the workers of `sharing`, as their owner sees them.
#pragma once

#include "fd_passing.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <poll.h>

#include <algorithm>
#include <string>
#include <vector>

struct Worker {
  const rdmacommon::Link *link;
  unsigned slot;
  std::string last;   // its last words, or the owner's words about its end
  unsigned asked = 0; // its requests; the owner refuses those after the first `requests`
};

// @return a worker that has something to say; nothing when all have finished, or are silent for too
//         long
inline Worker *next_to_speak(std::vector<Worker> &workers, const rdmacommon::Link &listener,
                             Limit limit) {
  std::vector<pollfd> links;
  for (const Worker &worker : workers) {
    const int fd = worker.link->fd() < 0 ? listener.fd() : worker.link->fd(); // not here yet?
    links.push_back({.fd = worker.last.empty() ? fd : -1, .events = POLLIN}); // -1 is ignored
  }
  if (std::all_of(links.begin(), links.end(), [](const pollfd &one) { return one.fd < 0; }))
    return nullptr;
  rdmacommon::check_errno(poll(links.data(), links.size(), static_cast<int>(limit.count())),
                          "poll");
  for (size_t i = 0; i < workers.size(); ++i)
    if (links[i].revents != 0)
      return &workers[i];
  for (Worker &worker : workers)
    if (worker.last.empty())
      worker.last = "is silent";
  return nullptr;
}

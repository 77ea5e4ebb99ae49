// SPDX-License-Identifier: MIT
// What the tests of a RingHost have in common.
#pragma once

#include <rdmacommon/ring_host.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace rdmacommon; // for tests alone
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

inline constexpr RingShape small{.slots = 16, .slot_size = 64};

inline std::string a_name() {
  static int count = 0;
  return "test_ring_host." + std::to_string(getpid()) + "." + std::to_string(++count);
}

// Until something has happened, which must be soon.
template <typename Condition> bool wait_until(RingHost &host, Condition is_true) {
  const auto deadline = steady_clock::now() + seconds(20);
  while (!is_true() && steady_clock::now() < deadline)
    host.wait(milliseconds(100));
  return is_true();
}

// A child that joins, and then does what it is there for.
inline std::unique_ptr<Child> joiner(RingHost &host,
                                     const std::function<void(RingWorker &, const Link &)> &body) {
  auto [host_end, worker_end] = make_link();
  auto child = std::make_unique<Child>([&, end = &worker_end](const Link &parent) {
    RingWorker worker(std::move(*end));
    body(worker, parent);
  });
  host.invite(std::move(host_end));
  return child;
}

// A worker that joins from here, while the host goes on.
inline std::future<std::unique_ptr<RingWorker>> joining(Link link) {
  return std::async(std::launch::async, [link = std::move(link)]() mutable {
    return std::make_unique<RingWorker>(std::move(link), seconds(20));
  });
}

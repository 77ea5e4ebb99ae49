// SPDX-License-Identifier: MIT
// A gate at which handlers and log functions wait until the test opens it.
#pragma once

#include <atomic>

namespace in_one_process {

class Gate {
public:
  void wait() const { is_open_.wait(false); }
  void open() {
    is_open_ = true;
    is_open_.notify_all();
  }
  void close() { is_open_ = false; } // nobody waits

private:
  std::atomic<bool> is_open_ = false;
};

// A test that fails must end, too.
struct OpenAtTheEnd {
  explicit OpenAtTheEnd(Gate &its) : gate(its) {}
  ~OpenAtTheEnd() { gate.open(); }
  OpenAtTheEnd(const OpenAtTheEnd &) = delete;
  OpenAtTheEnd &operator=(const OpenAtTheEnd &) = delete;

  Gate &gate;
};

} // namespace in_one_process

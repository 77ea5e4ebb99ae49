// SPDX-License-Identifier: MIT
// A log for several threads.
#pragma once

#include "rdmashared/basics.hpp"

#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

namespace rdmashared {

// The program's function, called by one thread at a time.
inline Log one_at_a_time(Log log) {
  if (!log)
    return log;
  const auto mutex = std::make_shared<std::mutex>();
  return [mutex, its = std::move(log)](std::string_view line) {
    const std::lock_guard lock(*mutex);
    its(line);
  };
}

} // namespace rdmashared

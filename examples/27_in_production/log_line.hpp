// SPDX-License-Identifier: MIT
// Log lines of the library, on standard error: why requests fail, or may fail.
#pragma once

#include <rdmashared/basics.hpp>

#include <cstdio>
#include <string_view>

inline void log_line(rdmashared::Level level, std::string_view line) {
  if (level == rdmashared::Level::warning)
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

// SPDX-License-Identifier: MIT
// For preloaded libraries: holds the calling thread until a line comes in on standard input. At
// this moment a test can do something.
#pragma once

#include <cstdio>

inline void wait_at_breakpoint() {
  std::puts("at the breakpoint");
  std::fflush(stdout);
  while (const int letter = std::getchar())
    if (letter == '\n' || letter == EOF)
      break;
}

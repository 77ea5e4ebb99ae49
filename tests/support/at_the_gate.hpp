// SPDX-License-Identifier: MIT
// For preloaded libraries: holds the calling thread until a line comes in on standard input. At
// this moment a test can do something.
#pragma once

#include <cstdio>

inline void wait_at_the_gate() {
  std::puts("at the gate");
  std::fflush(stdout);
  while (const int letter = std::getchar())
    if (letter == '\n' || letter == EOF)
      break;
}

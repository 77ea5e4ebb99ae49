// SPDX-License-Identifier: MIT
// The messages of client and server. Each request is a struct with a number of its own. The structs
// travel as they lie in memory, so both programs must be built from the same ones.
#pragma once

#include <cstdint>

// [messages]
struct Put {
  static constexpr uint32_t type = 1;
  uint32_t key;
  int32_t value;
};

struct Get {
  static constexpr uint32_t type = 2;
  uint32_t key;
};

// The response to both; to a Put it is the value that the key had before.
struct Value {
  int32_t value;
  uint32_t is_there; // 0: the key has none. That is no failure
};
// [messages]

// SPDX-License-Identifier: MIT
// The parts that all fuzzers share: their entry point, the input as numbers and bytes, and a check
// that stays in every build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

// libFuzzer calls this function.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// Reads the input from the front. Where it has ended there are zeros.
class Input {
public:
  Input(const uint8_t *bytes, size_t size) : left_{bytes, size} {}

  bool is_empty() const { return left_.empty(); }
  template <typename Number> Number get() {
    Number number{};
    const auto from = take(sizeof number);
    if (!from.empty())
      std::memcpy(&number, from.data(), from.size());
    return number;
  }
  std::span<const uint8_t> take(size_t size) {
    const auto from = left_.first(size < left_.size() ? size : left_.size());
    left_ = left_.subspan(from.size());
    return from;
  }
  std::span<const uint8_t> rest() { return take(left_.size()); }

private:
  std::span<const uint8_t> left_;
};

// This must hold for each input.
inline void require(bool so, const char *what) {
  if (so)
    return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// SPDX-License-Identifier: MIT
// The place in the program where a call was made.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lint {

// The return addresses of the calls on the stack, innermost first, as they were recorded. Cheap
// enough for each posted request; names come only with a finding. Where nothing is inlined, up to
// ten of them are of this library.
struct Site {
  std::array<void *, 18> frames{};
  int depth = 0;

  static Site here();
};

// One call of the program's own: frames of this library and of the verbs libraries are left out.
struct Frame {
  std::string module;   // path of the program or library
  std::uint64_t offset; // place of the call in the module, as addr2line takes it
  std::string symbol;   // "" if the module does not export it
};

// The innermost frames of `site`, six at most.
std::vector<Frame> frames_of(const Site &site);

// The first frame that is of no preloaded library; `depth` if there is none.
int first_outside(const Site &site);

// Returns true if librdmacm or libibverbs made the call, and not the program.
bool made_by_library(const Site &site);

} // namespace lint

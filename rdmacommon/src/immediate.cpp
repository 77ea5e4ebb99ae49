// SPDX-License-Identifier: MIT
#include "rdmacommon/immediate.hpp"

#include "rdmacommon/check.hpp"

#include <arpa/inet.h>

#include <string>

namespace rdmacommon {

uint32_t to_immediate(Run run) {
  if (run.first >= Run::first_limit || run.count >= Run::count_limit)
    throw Error("immediate data", std::to_string(run.count) + " from " + std::to_string(run.first) +
                                      " on do not fit into 24 and 8 bits");
  return htonl(run.first << 8 | run.count);
}

Run from_immediate(uint32_t imm_data) {
  const uint32_t bits = ntohl(imm_data);
  return {.first = bits >> 8, .count = bits & 0xff};
}

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
// The kinds of message, and their names on the command line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

enum class Operation { write, write_imm, send, read };
inline const std::vector<std::string> operation_names{"write", "write-imm", "send", "read"};

inline Operation operation_of(const std::string &name) {
  return static_cast<Operation>(std::ranges::find(operation_names, name) - operation_names.begin());
}
inline const char *name_of(Operation operation) {
  return operation_names[static_cast<size_t>(operation)].c_str();
}

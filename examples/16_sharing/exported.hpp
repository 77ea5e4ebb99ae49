// SPDX-License-Identifier: MIT
// 16_sharing: what a process tells another that is to import its PD and MR.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string>

// @return the numbers of `text`, with one space between them
template <size_t count>
std::array<uint64_t, count> parse_numbers(const std::string &text, uint64_t max) {
  std::array<uint64_t, count> numbers{};
  const char *at = text.data(), *const end = at + text.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && (at == end || *at++ != ' '))
      at = nullptr;
    const auto [next, error] = at ? std::from_chars(at, end, numbers.at(i))
                                  : std::from_chars_result{end, std::errc::invalid_argument};
    if (error != std::errc() || numbers.at(i) > max || (i + 1 == count && next != end))
      throw rdmacommon::Error("the owner's message", "its format is wrong");
    at = next;
  }
  return numbers;
}

// Handles are the kernel's numbers of the objects in this context. The address is the one that
// requests have to name, in whatever process they are made.
struct Exported {
  uint32_t pd, mr;
  uint64_t address;
};

inline std::string to_line(const Exported &what) {
  return std::to_string(what.pd) + ' ' + std::to_string(what.mr) + ' ' +
         std::to_string(what.address);
}

inline Exported parse_exported(const std::string &line) {
  const auto [pd, mr, address] = parse_numbers<3>(line, UINT64_MAX);
  if (pd > UINT32_MAX || mr > UINT32_MAX)
    throw rdmacommon::Error("the owner's message", "a handle has 32 bits");
  return {static_cast<uint32_t>(pd), static_cast<uint32_t>(mr), address};
}

// Whatever was passed: is it the command file of an RDMA device? @return "uverbs0"
inline std::string device_of(const rdmacommon::File &file) {
  struct stat about = {};
  rdmacommon::check_errno(fstat(file.get(), &about), "fstat");
  const std::string number =
      std::to_string(major(about.st_rdev)) + ':' + std::to_string(minor(about.st_rdev));
  std::error_code error;
  const auto device = std::filesystem::read_symlink("/sys/dev/char/" + number, error).filename();
  if (!S_ISCHR(about.st_mode) || error || !device.string().starts_with("uverbs"))
    throw rdmacommon::Error("the file", "it is not that of an RDMA device");
  return device.string();
}

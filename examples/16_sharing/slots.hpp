// SPDX-License-Identifier: MIT
// 16_sharing: the memory that all processes of `sharing` map, and whose slots one of them sends.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

constexpr uint32_t slots_version = 1;
constexpr unsigned slot_count = 4;

constexpr size_t text_size = 64;
using Text = std::array<char, text_size>;

inline void put(Text &to, const std::string &text) {
  std::snprintf(to.data(), to.size(), "%s", text.c_str());
}
inline std::string get(const Text &from) {
  return {from.data(), strnlen(from.data(), from.size())};
}

// [slots]
// No pointers: each process has it at another address. Fixed widths: they may be other builds.
struct Slot {
  std::atomic<uint32_t> length; // bytes of the request
  uint32_t reserved;
  Text request, reply;
};
struct Slots {
  uint32_t version;
  uint32_t reserved;
  std::array<Slot, slot_count> slots;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free); // a lock would be one process's own
// [slots]

// [memfd]
// Memory with a file descriptor and without a name: it is gone with the last process that has it.
inline rdmacommon::File make_memory() {
  rdmacommon::File file(rdmacommon::check_errno(
      memfd_create("slots", MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd_create"));
  rdmacommon::check_errno(ftruncate(file.get(), sizeof(Slots)), "ftruncate");
  // Otherwise a process could make it shorter, and others would die of SIGBUS when they touch the
  // end.
  rdmacommon::check_errno(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                          "F_ADD_SEALS");
  return file;
}
// [memfd]

// The slots in this process's address space.
class MappedSlots {
public:
  explicit MappedSlots(int file, int kind = MAP_SHARED) {
    struct stat about = {};
    rdmacommon::check_errno(fstat(file, &about), "fstat");
    const int seals = fcntl(file, F_GET_SEALS); // -1 of what is no memory
    if (about.st_size != sizeof(Slots) || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
      throw rdmacommon::Error("the memory", "it does not hold the slots");
    at_ = mmap(nullptr, sizeof(Slots), PROT_READ | PROT_WRITE, kind, file, 0);
    rdmacommon::check_errno(at_ == MAP_FAILED ? -1 : 0, "mmap");
  }
  ~MappedSlots() { munmap(at_, sizeof(Slots)); }
  MappedSlots(const MappedSlots &) = delete;
  MappedSlots &operator=(const MappedSlots &) = delete;
  Slots *operator->() const { return static_cast<Slots *>(at_); }
  Slots &operator*() const { return *static_cast<Slots *>(at_); }

private:
  void *at_ = nullptr;
};

// SPDX-License-Identifier: MIT
// The message in which the server of 30_device_memory says what there is: what a client takes, and
// what not.
#include "directory.hpp"

#include <gtest/gtest.h>

#include <functional>

using namespace rdmacommon;

namespace {

Directory honest() {
  return {.version = htobe32(1),
          .you = htobe32(3),
          .locks = htobe32(8),
          .counters = htobe32(8),
          .counters_address = htobe64(1 << 20),
          .counters_rkey = htobe32(0x1234),
          .reserved = 0};
}
constexpr RemoteMemory chip{.address = 0, .rkey = 7, .length = lock_at(8)};

// Returns the reason why a directory is refused; empty if it is taken.
std::string refused(const std::function<void(Directory &)> &lie, size_t length = sizeof(Directory),
                    const RemoteMemory &where = chip) {
  Directory said = honest();
  lie(said);
  try {
    from_directory(said, length, where);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

#define EXPECT_REFUSED(words, ...)                                                                 \
  EXPECT_NE(refused(__VA_ARGS__).find(words), std::string::npos) << refused(__VA_ARGS__)

void nothing(Directory &) {}

TEST(Locks, HonestDirectory) {
  EXPECT_EQ(refused(nothing), "");
  const Known known = from_directory(honest(), sizeof(Directory), chip);
  EXPECT_EQ(known.me, 3U);
  EXPECT_EQ(known.counters, 8U);
  EXPECT_EQ(known.chip.rkey, 7U);
  EXPECT_EQ(known.memory.address, 1U << 20);
  EXPECT_EQ(known.memory.rkey, 0x1234U);
  EXPECT_EQ(known.memory.length, 64U);
}

TEST(Locks, DirectoriesThatAreNotRight) {
  EXPECT_REFUSED("not the size", nothing, sizeof(Directory) - 4);
  EXPECT_REFUSED("another version", [](Directory &said) { said.version = htobe32(2); });
  EXPECT_REFUSED("which process", [](Directory &said) { said.you = 0; });
  EXPECT_REFUSED("no counters", [](Directory &said) { said.counters = 0; });
  EXPECT_REFUSED("not all of its locks", [](Directory &said) { said.locks = htobe32(9); });
  EXPECT_REFUSED("not all of its locks", [](Directory &said) { said.locks = UINT32_MAX; });
  EXPECT_REFUSED("fewer locks", [](Directory &said) { said.locks = htobe32(7); });
  EXPECT_REFUSED("where words are", [](Directory &said) { said.counters_address = htobe64(4); });
  EXPECT_REFUSED("past the last address",
                 [](Directory &said) { said.counters_address = htobe64(~7ULL); });
}

TEST(Locks, MemoryThatIsNotRight) {
  EXPECT_REFUSED("offset 0", nothing, sizeof(Directory),
                 {.address = 4096, .rkey = 7, .length = 65536});
  EXPECT_REFUSED("not all of its locks", nothing, sizeof(Directory),
                 {.address = 0, .rkey = 7, .length = lock_at(8) - 1});
}

} // namespace

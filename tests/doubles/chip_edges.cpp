// SPDX-License-Identifier: MIT
// For test_doubles.py, under the double: what 30_device_memory's memory refuses, and what the verbs
// below it do.
#include "on_chip.hpp"

#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>

using namespace rdmacommon;

namespace {

void require(bool so, const char *what) {
  std::printf("%s: %s\n", so ? "ok" : "NOT", what);
  if (!so)
    throw Error(what, "is not so");
}

// Returns true if the action is refused by an Error that contains `words`.
template <typename Action> bool refused(Action action, const char *words) {
  try {
    action();
  } catch (const Error &error) {
    return std::string(error.what()).find(words) != std::string::npos;
  }
  return false;
}

ibv_dm *alloc(ibv_context *context, size_t length, uint32_t log_align) {
  ibv_alloc_dm_attr attr{.length = length, .log_align_req = log_align, .comp_mask = 0};
  errno = 0;
  return ibv_alloc_dm(context, &attr);
}

constexpr unsigned plain = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;

void by_the_verbs(const Port &port, ibv_pd *pd) {
  ibv_context *context = port.context.get();
  const size_t on_chip = max_on_chip(context);
  require(on_chip == 131072, "the device has 128 KiB");
  require(!alloc(context, on_chip + 1, 3) && errno == EINVAL, "one byte more is refused");
  require(!alloc(context, 64, 13) && errno == EINVAL, "so is too large an alignment");
  ibv_dm *dm = alloc(context, on_chip, 3);
  require(dm != nullptr, "all of it is available");
  require(!alloc(context, 4, 3) && errno == ENOMEM, "and then there is no more");
  char bytes[8]{};
  require(ibv_memcpy_to_dm(dm, on_chip - 8, bytes, 8) == 0, "a copy up to the end");
  require(ibv_memcpy_to_dm(dm, on_chip - 4, bytes, 8) == EFAULT, "not behind it");
  require(ibv_memcpy_from_dm(bytes, dm, UINT64_MAX - 3, 8) == EFAULT, "nor round the corner");
  require(ibv_memcpy_from_dm(bytes, dm, 2, 4) == EINVAL, "copies are of words");
  require(!ibv_reg_dm_mr(pd, dm, 0, on_chip, IBV_ACCESS_LOCAL_WRITE), "a region is zero-based");
  require(!ibv_reg_dm_mr(pd, dm, 4096, on_chip, plain), "and ends where the memory does");
  ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 4096, 4096, plain);
  require(mr && !mr->addr, "a region has no address");
  require(ibv_free_dm(dm) == EBUSY, "memory with a region cannot be freed");
  require(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == 0, "without it can");
  dm = alloc(context, 64, 2);
  require(dm && !ibv_reg_dm_mr(pd, dm, 0, 64, plain | IBV_ACCESS_REMOTE_ATOMIC),
          "atomics need words that lie as such");
  require(ibv_free_dm(dm) == 0, "freed");
}

void by_our_class(const Port &port, ibv_pd *pd) {
  require(refused([&] { OnChip(port, pd, 131080, false); }, "131072 bytes") ||
              max_on_chip(port.context.get()) == 0,
          "more than there is");
  OnChip chip(port, pd, 4100, false);
  require(chip.size() == 4096, "whole words only");
  uint64_t word = 1;
  chip.copy_out(&word, 4088, 8);
  require(word == 0, "it begins as zeros");
  require(refused([&] { chip.copy_in(4092, &word, 8); }, "there are 4096"), "behind the end");
  require(refused([&] { chip.copy_out(&word, SIZE_MAX - 3, 8); }, "there are 4096"), "wraps");
  require(refused([&] { chip.copy_in(6, &word, 4); }, "multiples of four"), "not at a word");
  require(refused([&] { chip.copy_in(4, &word, 3); }, "multiples of four"), "not a word");
}

void chip_edges(int argc, char **argv) {
  CommandLine line{"What is refused."};
  DeviceOptions options{line};
  line.parse(argc, argv);
  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  if (max_on_chip(port.context.get()) != 0)
    by_the_verbs(port, pd.get());
  by_our_class(port, pd.get());
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, chip_edges);
}

// SPDX-License-Identifier: MIT
// Prints what ibv_fork_init() returns, before or after the first region, and whether children get
// that region's page: for test_fork.py.
#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>

#include <infiniband/verbs.h>

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

using namespace rdmacommon;

namespace {

constexpr size_t page = 4096;

// Returns true if the kernel leaves the mapping that begins at `address` out of a fork: "dc" in
// proc(5), smaps.
bool is_left_out(const void *address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2)
      is_it = begin == reinterpret_cast<uintptr_t>(address);
    else if (is_it && line.starts_with("VmFlags:"))
      return line.find(" dc") != std::string::npos;
  }
  throw Error("/proc/self/smaps", "the page is not in it");
}

void fork_init(int argc, char **argv) {
  CommandLine line{"Calls ibv_fork_init early or late."};
  DeviceOptions options{line};
  std::string when = "early";
  line.add("--when", when, "before or after the first region", {"early", "late"});
  line.parse(argc, argv);

  // Between two pages that nobody may touch, so that it is a mapping of its own.
  char *const there =
      static_cast<char *>(mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  check_errno(there == MAP_FAILED ? -1 : 0, "mmap");
  check_errno(mprotect(there + page, page, PROT_READ | PROT_WRITE), "mprotect");

  int error = when == "early" ? ibv_fork_init() : 0;
  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_mr mr = reg_mr(pd.get(), there + page, page, int{IBV_ACCESS_LOCAL_WRITE});
  if (when == "late")
    error = ibv_fork_init();
  std::printf("ibv_fork_init: %s\nthe page: %s\n", strerrorname_np(error),
              is_left_out(there + page) ? "taken away from children" : "left to children");
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, fork_init);
}

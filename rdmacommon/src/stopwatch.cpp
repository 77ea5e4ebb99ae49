// SPDX-License-Identifier: MIT
#include "rdmacommon/stopwatch.hpp"

#include "rdmacommon/check.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace rdmacommon {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double machine_cpu_ms() {
  std::ifstream stat("/proc/stat");
  std::string all_cpus;
  uint64_t user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0;
  if (!(stat >> all_cpus >> user >> nice >> system >> idle >> waiting >> irq >> softirq))
    throw Error("/proc/stat", "it cannot be read");
  // The next number, "steal", is time in which another machine had the CPU.
  return static_cast<double>(user + nice + system + irq + softirq) * 1000 /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

} // namespace rdmacommon

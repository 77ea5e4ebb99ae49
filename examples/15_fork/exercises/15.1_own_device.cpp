// SPDX-License-Identifier: MIT
// Exercise 15.1 (★): three workers, and each of them sends.
// Wanted:   each worker's own message arrives at the worker.
// Hints: ./lab hint 15.1
// Check: ./lab check 15.1

#include "child.hpp"
#include "resources.hpp"

#include <rdmacommon/options.hpp>

#include <cstdio>
#include <deque>
#include <string>

using namespace rdmacommon;

namespace {

void own_device(int argc, char **argv) {
  CommandLine line{"Three workers, each of which sends."};
  DeviceOptions options{line};
  line.parse(argc, argv);
  const Limit limit(5000);

  // TODO: whose are they?
  const Mapped<Buffers> memory(AtFork::copied);
  const Resources rdma(options, *memory);
  std::deque<Child> children;
  for (int i = 0; i < 3; ++i)
    children.emplace_back([&](const Link &parent) {
      rdma.receive();
      rdma.send("hello from worker " + std::to_string(i));
      rdma.wait_for_message(limit);
      parent.send(get(memory->incoming));
    });
  for (Child &worker : children) {
    std::printf("%s\n", worker.link().receive(limit).c_str());
    worker.wait(limit);
  }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, own_device);
}

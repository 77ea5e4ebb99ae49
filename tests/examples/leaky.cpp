// SPDX-License-Identifier: MIT
// Closes its device with a PD and a CQ still on it, so that test_leaks can see that it would be
// seen.
#include <rdmacommon/device.hpp>

using namespace rdmacommon;

static void leaky(int argc, char **argv) {
  CommandLine line{"Leaks a PD and a CQ."};
  DeviceOptions options{line};
  line.parse(argc, argv);
  const Port port = open_port(options);
  ibv_alloc_pd(port.context.get());
  ibv_create_cq(port.context.get(), 1, nullptr, nullptr, 0);
}

int main(int argc, char **argv) {
  return run_main(argc, argv, leaky);
}

// SPDX-License-Identifier: MIT
// Exercise 01.1 (★): how many of each device's ports are active?
// Wanted:   a line for each device, rxe0: 1 of 1 ports active
// Hints: ./lab hint 01.1
// Check: ./lab check 01.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/options.hpp>

#include <infiniband/verbs.h>

#include <cstdio>

using namespace rdmacommon;

namespace {

void active_ports(int, char **) {
  int count = 0;
  const std::unique_ptr<ibv_device *[], decltype(&ibv_free_device_list)> devices(
      check_ptr(ibv_get_device_list(&count), "ibv_get_device_list"), ibv_free_device_list);
  for (int i = 0; i < count; ++i) {
    const unique_context context(check_ptr(ibv_open_device(devices[i]), "ibv_open_device"));
    ibv_device_attr device{};
    check_rc(ibv_query_device(context.get(), &device), "ibv_query_device");
    int active = 0;
    // TODO: count the ports whose state is IBV_PORT_ACTIVE.
    std::printf("%s: %d of %d ports active\n", ibv_get_device_name(devices[i]), active,
                device.phys_port_cnt);
  }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, active_ports);
}

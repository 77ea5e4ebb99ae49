// SPDX-License-Identifier: MIT
// For test_waiting.py: what 06_completions' sleep makes of asynchronous events. A pipe stands in
// for the device's own file, since nothing here can make a device report a new GID or its own
// failure at will.

#include "epoll_sleep.hpp"

#include <rdmacommon/device.hpp>
#include <rdmacommon/options.hpp>

#include <rdma/ib_user_verbs.h>

#include <cstdio>
#include <utility>

using namespace rdmacommon;

static void report(int device, ibv_event_type event) {
  const ib_uverbs_async_event_desc what{.element = 1, .event_type = event, .reserved = 0};
  check_errno(static_cast<int>(write(device, &what, sizeof what)), "write");
}

static void async_events(int argc, char **argv) {
  CommandLine line{"Sleeps while a device reports this and that."};
  DeviceOptions options{line};
  line.parse(argc, argv);
  const Port port = open_port(options);
  const unique_comp_channel channel(
      check_ptr(ibv_create_comp_channel(port.context.get()), "ibv_create_comp_channel"));
  int ends[2];
  check_errno(pipe(ends), "pipe");
  const int before = std::exchange(port.context->async_fd, ends[0]);
  const Sleep sleep(port.context.get(), channel.get());

  report(ends[1], IBV_EVENT_GID_CHANGE);
  report(ends[1], IBV_EVENT_PORT_ACTIVE);
  std::printf("harmless events: %s\n",
              sleep.until_event(std::chrono::milliseconds(100)) ? "a completion" : "slept on");
  report(ends[1], IBV_EVENT_DEVICE_FATAL);
  try {
    sleep.until_event(std::chrono::milliseconds(100));
    std::printf("a broken device: slept on\n");
  } catch (const Error &error) {
    std::printf("a broken device: %s\n", error.what());
  }
  port.context->async_fd = before;
}

int main(int argc, char **argv) {
  return run_main(argc, argv, async_events);
}

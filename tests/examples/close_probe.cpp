// SPDX-License-Identifier: MIT
// A preloaded library that looks, when a program closes its device, at what is still open on it.
//
// At exit the kernel cleans up after everybody, so looking afterwards would show nothing. `rdma
// resource` shows each object with the process that made it; here is the last moment to ask.
// librdmacm never closes the device that it has opened: there it is when the program destroys its
// last event channel.
#include "next.hpp"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

void look() {
  const std::string command =
      "printf 'resource show %s pid " + std::to_string(getpid()) + "\\n' qp cq mr pd | rdma -b -";
  FILE *objects = popen(command.c_str(), "r");
  char line[512];
  while (objects && std::fgets(line, sizeof line, objects))
    std::fprintf(stderr, "left open: %s", line);
  if (!objects || pclose(objects) != 0)
    std::fprintf(stderr, "left open: cannot ask rdma resource\n");
  std::fprintf(stderr, "closed the device\n");
}

// librdmacm makes and destroys channels of its own, too: one in its first call, and one with each
// id that has left the program's channel. Then the program may still work with others.
bool is_librdmacm(const void *caller) {
  Dl_info its{};
  return dladdr(caller, &its) != 0 && std::strstr(its.dli_fname, "librdmacm");
}

std::atomic<int> channels{0}; // open channels that the program itself made

} // namespace

extern "C" int ibv_close_device(ibv_context *context) {
  look();
  static const auto real = REAL(ibv_close_device);
  return real(context);
}

extern "C" rdma_event_channel *rdma_create_event_channel() {
  static const auto real = REAL(rdma_create_event_channel);
  rdma_event_channel *channel = real();
  if (channel && !is_librdmacm(__builtin_return_address(0)))
    ++channels;
  return channel;
}

extern "C" void rdma_destroy_event_channel(rdma_event_channel *channel) {
  if (!is_librdmacm(__builtin_return_address(0)) && --channels == 0)
    look();
  static const auto real = REAL(rdma_destroy_event_channel);
  real(channel);
}

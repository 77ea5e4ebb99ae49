// A preloaded library that looks, when a program closes its device, at what is still open on it.
//
// At exit the kernel cleans up after everybody, so looking afterwards would show nothing. `rdma
// resource` shows each object with the process that made it; here is the last moment to ask. librdmacm never closes
// the device that it has opened: there it is when the program destroys its event channel.
#include <infiniband/verbs.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

struct rdma_event_channel;

namespace {

void look() {
  for (const char *kind : {"qp", "cq", "mr", "pd"}) {
    const std::string command = std::string("rdma resource show ") + kind + " pid " +
                                std::to_string(getpid()) + " | sed 's/^/left open: " + kind +
                                " /' >&2";
    if (std::system(command.c_str()) != 0)
      std::fprintf(stderr, "left open: cannot ask rdma resource\n");
  }
  std::fprintf(stderr, "closed the device\n");
}

} // namespace

extern "C" int ibv_close_device(ibv_context *context) {
  look();
  const auto real = reinterpret_cast<int (*)(ibv_context *)>(dlsym(RTLD_NEXT, "ibv_close_device"));
  return real(context);
}

extern "C" void rdma_destroy_event_channel(rdma_event_channel *channel) {
  look();
  const auto real = reinterpret_cast<void (*)(rdma_event_channel *)>(
      dlsym(RTLD_NEXT, "rdma_destroy_event_channel"));
  real(channel);
}

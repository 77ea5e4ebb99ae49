#include "rdmacommon/cm.hpp"

#include "hints.hpp"
#include "resolve.hpp"
#include "wait_for.hpp"

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace rdmacommon {
namespace {

constexpr size_t prefix = sizeof "RDMA_CM_EVENT_" - 1;

// Of the reasons in the InfiniBand Architecture Specification (volume 1, 12.6.7.2) those that rdma_cm itself gives.
std::string reject_reason(int status) {
  switch (status) {
  case 1:
    return "no QP available";
  case 4:
    return "no resources available";
  case 8:
    return "invalid service ID";
  case 10:
    return "stale connection";
  case 28:
    return "consumer reject";
  default:
    return "see ib_cm.h";
  }
}

} // namespace

CmAddress cm_address(const CmOptions &options) {
  const bool any = options.host.empty();
  const unique_addrinfo found = resolve(options.host, options.cm_port, any ? AF_INET6 : AF_UNSPEC,
                                        any ? AI_PASSIVE | AI_NUMERICHOST : 0);
  CmAddress address{};
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  return address;
}

unique_event_channel create_event_channel() {
  unique_event_channel channel(check_ptr(rdma_create_event_channel(), "rdma_create_event_channel"));
  const int flags = check_errno(fcntl(channel->fd, F_GETFL), "fcntl(F_GETFL)");
  check_errno(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK), "fcntl(O_NONBLOCK)");
  return channel;
}

// [take-event]
unique_cm_event take_cm_event(rdma_event_channel *channel) {
  rdma_cm_event *event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) {
    if (errno == EAGAIN || errno == EINTR)
      return nullptr;
    throw_errno(errno, "rdma_get_cm_event");
  }
  return unique_cm_event(event); // which acknowledges it, later
}
// [take-event]

// [next-event]
unique_cm_event next_cm_event(rdma_event_channel *channel, rdma_cm_event_type wanted,
                              std::chrono::milliseconds timeout, Where where) {
  const auto deadline = Clock::now() + timeout;
  while (wait_for(channel->fd, POLLIN, deadline))
    if (unique_cm_event event = take_cm_event(channel))
      return event;
  throw Error(name_of(wanted), "no event within " + std::to_string(timeout.count()) + " ms", where,
              wanted == RDMA_CM_EVENT_CONNECT_REQUEST
                  ? hint("no client has come: start one, with this host's address", "no-client")
                  : hint_for_cm_event(RDMA_CM_EVENT_UNREACHABLE, 0));
}
// [next-event]

void check_cm_event(const rdma_cm_event &event, rdma_cm_event_type wanted, Where where) {
  if (event.event == wanted)
    return;
  std::string why = "instead of " + std::string(name_of(wanted));
  if (event.event == RDMA_CM_EVENT_REJECTED)
    why += ", with reason " + std::to_string(event.status) + ", " + reject_reason(event.status);
  else if (event.status != 0)
    why += ", with status " + std::to_string(event.status) + ", " + std::strerror(-event.status);
  throw Error(name_of(event.event), why, where, hint_for_cm_event(event.event, event.status));
}

unique_cm_event wait_for_cm_event(rdma_event_channel *channel, rdma_cm_event_type wanted,
                                  std::chrono::milliseconds timeout, Where where) {
  unique_cm_event event = next_cm_event(channel, wanted, timeout, where);
  check_cm_event(*event, wanted, where);
  return event;
}

const char *name_of(rdma_cm_event_type event) {
  const char *name = rdma_event_str(event);
  return std::strncmp(name, "RDMA_CM_EVENT_", prefix) == 0 ? name + prefix : name;
}

} // namespace rdmacommon

// SPDX-License-Identifier: MIT
#include "rdmacommon/cm.hpp"

#include "hints.hpp"
#include "resolve.hpp"
#include "wait_for.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace rdmacommon {
namespace {

constexpr size_t prefix = sizeof "RDMA_CM_EVENT_" - 1;

// The reasons that rdma_cm itself gives, of those in the InfiniBand Architecture Specification
// (volume 1, 12.6.7.2).
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

CmAddress cm_address(const CmOptions &options, Where where) {
  return cm_address(options.host, options.cm_port, where);
}

CmAddress cm_address(const std::string &host, uint16_t port, Where where) {
  const bool any = host.empty();
  const unique_addrinfo found =
      resolve(host, port, any ? AF_INET6 : AF_UNSPEC, any ? AI_PASSIVE | AI_NUMERICHOST : 0, where);
  CmAddress address{};
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  return address;
}

unique_event_channel create_event_channel(Where where) {
  unique_event_channel channel(
      check_ptr(rdma_create_event_channel(), "rdma_create_event_channel", where));
  const int flags = check_errno(fcntl(channel->fd, F_GETFL), "fcntl(F_GETFL)", where);
  check_errno(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK), "fcntl(O_NONBLOCK)", where);
  return channel;
}

unique_cm_event take_cm_event(rdma_event_channel *channel, Where where) {
  rdma_cm_event *event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) {
    if (errno == EAGAIN || errno == EINTR)
      return nullptr;
    throw_errno(errno, "rdma_get_cm_event", where);
  }
  return unique_cm_event(event); // its destructor acknowledges the event
}

unique_cm_event next_cm_event(rdma_event_channel *channel, rdma_cm_event_type wanted,
                              std::chrono::milliseconds timeout, Where where) {
  const auto deadline = Clock::now() + timeout;
  while (wait_for(channel->fd, POLLIN, deadline))
    if (unique_cm_event event = take_cm_event(channel, where))
      return event;
  throw Error(name_of(wanted), "no event within " + std::to_string(timeout.count()) + " ms",
              hint_for_no_cm_event(wanted), where);
}

void check_cm_event(const rdma_cm_event &event, rdma_cm_event_type wanted, Where where) {
  if (event.event == wanted)
    return;
  std::string why = "it came instead of " + std::string(name_of(wanted));
  if (event.event == RDMA_CM_EVENT_REJECTED)
    why += ", with reason " + std::to_string(event.status) + ", " + reject_reason(event.status);
  else if (event.status == -1) // librdmacm itself has failed, and keeps the reason to itself
    why += ", with status -1";
  else if (event.status != 0)
    why += ", with status " + std::to_string(event.status) + ", " +
           std::strerror(std::abs(event.status));
  throw Error(name_of(event.event), why, hint_for_cm_event(event.event, event.status), where);
}

unique_cm_event wait_for_cm_event(rdma_event_channel *channel, rdma_cm_event_type wanted,
                                  std::chrono::milliseconds timeout, Where where) {
  unique_cm_event event = next_cm_event(channel, wanted, timeout, where);
  check_cm_event(*event, wanted, where);
  return event;
}

unique_cm_id create_cm_id(rdma_event_channel *channel, Where where) {
  rdma_cm_id *made = nullptr;
  check_errno(rdma_create_id(channel, &made, nullptr, RDMA_PS_TCP), "rdma_create_id", where);
  return unique_cm_id(made);
}

unique_cm_id cm_listen(rdma_event_channel *channel, CmAddress &address, int backlog, Where where) {
  unique_cm_id listener = create_cm_id(channel, where);
  check_errno(rdma_bind_addr(listener.get(), address.get()), "rdma_bind_addr", where);
  check_errno(rdma_listen(listener.get(), backlog), "rdma_listen", where);
  return listener;
}

unique_cm_id cm_listen(rdma_event_channel *channel, const CmOptions &options, int backlog,
                       Where where) {
  CmAddress address = cm_address(options, where);
  unique_cm_id listener = cm_listen(channel, address, backlog, where);
  std::printf("listening on rdma_cm port %u\n", ntohs(rdma_get_src_port(listener.get())));
  return listener;
}

void cm_resolve(rdma_cm_id *id, rdma_event_channel *channel, const CmOptions &options,
                Where where) {
  const std::chrono::milliseconds own_limit = options.timeout;
  const auto limit = own_limit + std::chrono::seconds(1); // rdma_cm gives up first: it says why
  const int limit_ms = static_cast<int>(own_limit.count());
  CmAddress server = cm_address(options, where);
  check_errno(rdma_resolve_addr(id, nullptr, server.get(), limit_ms), "rdma_resolve_addr", where);
  wait_for_cm_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, limit, where);
  check_errno(rdma_resolve_route(id, limit_ms), "rdma_resolve_route", where);
  wait_for_cm_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, limit, where);
}

unique_cm_qp create_cm_qp(rdma_cm_id *id, ibv_pd *pd, ibv_cq *cq, const ibv_qp_cap &cap,
                          Where where) {
  ibv_qp_init_attr wanted{.send_cq = cq, .recv_cq = cq, .cap = cap, .qp_type = IBV_QPT_RC};
  check_errno(rdma_create_qp(id, pd, &wanted), "rdma_create_qp", where);
  return unique_cm_qp(id);
}

const char *name_of(rdma_cm_event_type event) {
  const char *name = rdma_event_str(event);
  return std::strncmp(name, "RDMA_CM_EVENT_", prefix) == 0 ? name + prefix : name;
}

} // namespace rdmacommon

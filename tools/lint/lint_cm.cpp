// SPDX-License-Identifier: MIT
// The objects of rdma_cm: event channels and ids, and the events that have to be acknowledged.
//
// The program gets each event as a copy on a page of its own. The page is taken away when the event
// is acknowledged, so a later use is noticed.

#include "failed_calls.hpp"
#include "interpose.hpp"
#include "tracked.hpp"

#include <cstring>
#include <deque>
#include <netdb.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lint {
namespace {

namespace call = preload::call;

// InfiniBand and RoCE carry so many bytes of private data (lesson 12).
std::size_t request_data(const rdma_cm_id *id) {
  return id->ps == RDMA_PS_UDP ? 180 : 56;
}
std::size_t answer_data(const rdma_cm_id *id) {
  return id->ps == RDMA_PS_UDP ? 136 : 196;
}
std::size_t rejection_data(const rdma_cm_id *id) {
  return id->ps == RDMA_PS_UDP ? 136 : 148;
}

// The types are those of the calls, without a const more: else the template is the better match.
std::string why_failed(call::rdma_connect, int error, rdma_cm_id *id, rdma_conn_param *param) {
  return error == EINVAL ? why_not_connected(id, param, request_data(id)) : "";
}
std::string why_failed(call::rdma_accept, int error, rdma_cm_id *id, rdma_conn_param *param) {
  return error == EINVAL ? why_not_connected(id, param, answer_data(id)) : "";
}
std::string why_failed(call::rdma_reject, int error, rdma_cm_id *id, const void *,
                       std::uint8_t length) {
  const std::size_t most = rejection_data(id);
  return error == EINVAL && length > most
             ? print("the length is %u, and InfiniBand and RoCE carry %zu", length, most)
             : "";
}
std::string why_failed(call::rdma_create_qp, int error, rdma_cm_id *id, ibv_pd *,
                       ibv_qp_init_attr *attr) {
  return error == EINVAL ? why_no_qp(id->verbs, *attr) : "";
}

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// @return the copy; the original if there is no memory for one
rdma_cm_event *copy_of(rdma_cm_event *original) {
  void *page =
      mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED)
    return original;
  auto *copy = static_cast<rdma_cm_event *>(std::memcpy(page, original, sizeof *original));
  // Both kinds of param begin with their private data.
  if (auto &conn = copy->param.conn; conn.private_data)
    conn.private_data = std::memcpy(copy + 1, conn.private_data, conn.private_data_len);
  const Locked lock;
  add<CmEvent>(copy, "event ", nullptr).original = original;
  return copy;
}

// Takes the page of an acknowledged event away. The last ones stay, so that a use is noticed.
void take_away(rdma_cm_event *copy) {
  constexpr std::size_t kept = 256;
  static auto &pages = *new std::deque<void *>;
  void *oldest = nullptr;
  {
    const Locked lock;
    const auto event = find<CmEvent>(copy);
    event->live = false;
    event->destroyed = Site::here();
    protect_event(copy, page_size(), event->destroyed);
    pages.push_back(copy);
    if (pages.size() > kept) {
      oldest = pages.front();
      pages.pop_front();
      unprotect_event(oldest);
    }
  }
  if (oldest) {
    forget_dead(oldest);
    const LibraryScope library_scope;
    munmap(oldest, page_size());
  }
}

void made_id(const void *id, const void *channel) {
  const Locked lock;
  add<CmId>(id, "id", nullptr).channel = channel;
}

// A connect request's event is acknowledged for the listener.
const void *owner_of(const rdma_cm_event &event) {
  return event.listen_id ? event.listen_id : event.id;
}

void made(call::rdma_create_event_channel, rdma_event_channel *channel) {
  const Locked lock;
  add<CmChannel>(channel, "event channel ", nullptr);
}
void made(call::rdma_create_id, int, rdma_event_channel *channel, rdma_cm_id **id, void *,
          rdma_port_space) {
  made_id(*id, channel);
}
void made(call::rdma_get_cm_event, int, rdma_event_channel *channel, rdma_cm_event **event) {
  if ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST) // it comes with an id of its own
    made_id((*event)->id, channel);
  const Locked lock;
  if (const auto its = find<CmId>(owner_of(**event)))
    its->events.take();
}

} // namespace
} // namespace lint

#include "checked.hpp"

namespace lint {

// It destroys the id by rdma_destroy_id.
template <typename Real> void around(call::rdma_destroy_ep, Real real, rdma_cm_id *) {
  real();
}

template <typename Real> int around(call::rdma_destroy_id kind, Real real, rdma_cm_id *id) {
  {
    const Locked lock;
    // An id without a channel of the program's keeps its last event, and acknowledges it itself.
    if (const auto its = find<CmId>(id); its && its->live && id->event)
      its->events.acknowledge(1);
  }
  const auto destroys = [&] {
    if (id->qp) {
      const Locked lock;
      if (const auto qp = find<Qp>(id->qp); qp && qp->live)
        report(rules::destroy_order, "rdma_destroy_id, but its " + qp->name + " still exists",
               qp->name, qp->history());
    }
    return real();
  };
  return checked(kind, kind.name, destroys, id);
}

template <typename Real>
int around(call::rdma_get_cm_event kind, Real real, rdma_event_channel *channel,
           rdma_cm_event **event) {
  report_faults();
  const int result = checked(kind, kind.name, real, channel, event);
  if (!result && !made_by_library(Site::here()))
    *event = copy_of(*event);
  return result;
}

// Its result is an error of getaddrinfo(3), and errno says nothing.
template <typename Real>
int around(call::rdma_getaddrinfo kind, Real real, const char *, const char *,
           const rdma_addrinfo *, rdma_addrinfo **) {
  return called(kind, real, [&](int result) {
    if (result && !made_by_library(Site::here()))
      report(rules::call_failed,
             std::string(kind.name) + ": " + gai_strerror(result) +
                 "; see lessons/troubleshooting.md#unknown-host",
             kind.name);
  });
}

template <typename Real> int around(call::rdma_ack_cm_event kind, Real real, rdma_cm_event *event) {
  if (refuses_null(kind, kind.name, event))
    return preload::failed_with<int>(kind, EINVAL);
  std::shared_ptr<CmEvent> known;
  {
    const Locked lock;
    known = find<CmEvent>(event);
    if (known && !known->live)
      report(rules::event_acked, "rdma_ack_cm_event of an event that is acknowledged already",
             known->name, {{"taken", known->made}, {"acked", known->destroyed}});
    else if (const auto its = find<CmId>(owner_of(*event)))
      its->events.acknowledge(1);
  }
  if (known && !known->live)
    return preload::failed_with<int>(kind, EINVAL);
  if (!known)
    return real();
  static const auto acknowledge = REAL(rdma_ack_cm_event);
  const int result = acknowledge(known->original);
  take_away(event);
  return result;
}

} // namespace lint

using namespace lint;

extern "C" {
#define CM_CALL INTERPOSE
#include "calls.def"
}

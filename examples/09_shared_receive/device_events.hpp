// SPDX-License-Identifier: MIT
// The events of the device that the server of 09_shared_receive takes: its receives run low, or a
// queue pair holds none any more.
#pragma once

#include "sleeping.hpp"

#include <rdmacommon/check.hpp>

#include <infiniband/verbs.h>

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <set>

class DeviceEvents {
public:
  explicit DeviceEvents(ibv_context *device) : device_(device) { do_not_block(device->async_fd); }

  // Takes the device's events. Returns true if one of them says that the receives run low.
  bool limit_reached() {
    bool reached = false;
    ibv_async_event event{};
    // [async]
    while (ibv_get_async_event(device_, &event) == 0) {
      const ibv_event_type type = event.event_type;
      const uint32_t qpn = type == IBV_EVENT_QP_LAST_WQE_REACHED ? event.element.qp->qp_num : 0;
      ibv_ack_async_event(&event); // without this, destroying the event's object waits forever
      if (type == IBV_EVENT_SRQ_LIMIT_REACHED)
        reached = true; // and the limit is no longer armed
      else if (type == IBV_EVENT_QP_LAST_WQE_REACHED)
        without_receives_.insert(qpn); // may come more than once for a QP
      else if (type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_CQ_ERR)
        throw rdmacommon::Error("the device", ibv_event_type_str(type));
    }
    // [async]
    if (errno != EAGAIN && errno != EINTR)
      rdmacommon::throw_errno(errno, "ibv_get_async_event");
    return reached;
  }

  // Waits until `ended` queue pairs hold no receive any more: after that, the program may free the
  // buffers. Not every device raises this event, so there is a time limit. Returns for how many
  // queue pairs the event has come.
  size_t wait_for_last_wqes(size_t ended) {
    using namespace std::chrono;
    const auto limit = steady_clock::now() + seconds(1);
    while (without_receives_.size() < ended) {
      const auto left = ceil<milliseconds>(limit - steady_clock::now()).count();
      pollfd events{.fd = device_->async_fd, .events = POLLIN, .revents = 0};
      if (left <= 0 || poll(&events, 1, static_cast<int>(left)) == 0)
        break;
      limit_reached();
    }
    return without_receives_.size();
  }

private:
  ibv_context *device_;
  std::set<uint32_t> without_receives_; // numbers of queue pairs
};

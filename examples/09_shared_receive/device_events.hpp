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

  // [async]
  // Takes the device's events, and says whether one of them is that the receives run low.
  bool limit_reached() {
    bool reached = false;
    ibv_async_event event{};
    while (ibv_get_async_event(device_, &event) == 0) {
      const ibv_event_type type = event.event_type;
      const uint32_t qpn = type == IBV_EVENT_QP_LAST_WQE_REACHED ? event.element.qp->qp_num : 0;
      ibv_ack_async_event(&event); // or destroying the object that it is about waits forever
      if (type == IBV_EVENT_SRQ_LIMIT_REACHED)
        reached = true; // and it is not armed any more
      else if (type == IBV_EVENT_QP_LAST_WQE_REACHED)
        without_receives_.insert(qpn); // a queue pair may say so more than once
      else if (type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_CQ_ERR)
        throw rdmacommon::Error("the device", ibv_event_type_str(type));
    }
    if (errno != EAGAIN && errno != EINTR)
      rdmacommon::throw_errno(errno, "ibv_get_async_event");
    return reached;
  }
  // [async]

  // [last-wqe]
  // Waits until `ended` queue pairs hold no receive any more: after that, their buffers may be
  // freed. Not every device says so, which is why there is a limit. Returns how many queue pairs
  // have said so.
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
  // [last-wqe]

private:
  ibv_context *device_;
  std::set<uint32_t> without_receives_; // numbers of queue pairs
};

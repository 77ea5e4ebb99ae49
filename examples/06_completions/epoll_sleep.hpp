// SPDX-License-Identifier: MIT
// The objects that both sides of the programs work with, and the way they sleep.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>

constexpr int burst = 32;                   // messages that may be under way
constexpr uint32_t queue_depth = burst + 1; // the messages, and the answer to them

// Time limit of a loop that waits.
class Deadline {
public:
  explicit Deadline(std::chrono::milliseconds timeout)
      : end_(std::chrono::steady_clock::now() + timeout), timeout_(timeout) {}
  void check(const char *what) const {
    if (std::chrono::steady_clock::now() > end_)
      throw rdmacommon::Error(what, "none within " + std::to_string(timeout_.count()) + " ms");
  }

private:
  std::chrono::steady_clock::time_point end_;
  std::chrono::milliseconds timeout_;
};
// Returns true if this program can continue after this event. A new GID, or a port that is up
// again, breaks nothing.
inline bool is_harmless(ibv_event_type event) {
  switch (event) {
  case IBV_EVENT_CQ_ERR:
  case IBV_EVENT_SRQ_ERR:
  case IBV_EVENT_QP_FATAL:
  case IBV_EVENT_QP_REQ_ERR:
  case IBV_EVENT_QP_ACCESS_ERR:
  case IBV_EVENT_PORT_ERR:
  case IBV_EVENT_DEVICE_FATAL:
    return false;
  default:
    return true;
  }
}

// Takes an event from the device's own file descriptor, and throws if something is broken.
inline void take_async_event(ibv_context *device) {
  ibv_async_event event{};
  rdmacommon::check_errno(ibv_get_async_event(device, &event), "ibv_get_async_event");
  ibv_ack_async_event(&event); // destroying the QP or CQ of the event waits for this call
  if (!is_harmless(event.event_type))
    throw rdmacommon::Error("the device reports", ibv_event_type_str(event.event_type));
}

// Waits until the device reports that `cq` has overrun. Its other events do not matter here. A
// device may have more room than it says, and then reports nothing.
inline const char *overrun_event(ibv_context *device, const ibv_cq *cq,
                                 std::chrono::milliseconds timeout) {
  // Half of it: the peer waits for us, and no longer than this.
  const auto deadline = std::chrono::steady_clock::now() + timeout / 2;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
    pollfd async{.fd = device->async_fd, .events = POLLIN, .revents = 0};
    if (rdmacommon::check_errno(poll(&async, 1, static_cast<int>(left.count())), "poll") == 0)
      return "no event, so it has more room";
    ibv_async_event event{};
    rdmacommon::check_errno(ibv_get_async_event(device, &event), "ibv_get_async_event");
    ibv_ack_async_event(&event); // as with the other events: or destroying the CQ waits for it
    if (event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq)
      return ibv_event_type_str(event.event_type);
  }
}

// Lets this program sleep. It waits for the device's own file descriptor as well, so that a
// broken queue ends the sleep.
class Sleep {
public:
  Sleep(ibv_context *device, const ibv_comp_channel *channel)
      : device_(device),
        epoll_(rdmacommon::check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {
    for (const int fd : {channel->fd, device->async_fd}) {
      epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
      if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &wanted) != 0) {
        const int error = errno;
        close(epoll_);
        rdmacommon::throw_errno(error, "epoll_ctl");
      }
    }
    channel_ = channel->fd;
  }
  ~Sleep() { close(epoll_); }
  Sleep(const Sleep &) = delete;
  Sleep &operator=(const Sleep &) = delete;

  // True if the channel has an event; false if there is none in time.
  bool until_event(std::chrono::milliseconds timeout) const {
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      epoll_event found{};
      const int count =
          epoll_wait(epoll_, &found, 1, static_cast<int>(std::max(left.count(), int64_t{0})));
      if (count < 0 && errno == EINTR)
        continue;
      if (rdmacommon::check_errno(count, "epoll_wait") == 0)
        return false;
      if (found.data.fd == channel_)
        return true;
      take_async_event(device_);
    }
  }

private:
  ibv_context *device_;
  int epoll_, channel_ = -1;
};

// [channel]
inline rdmacommon::unique_comp_channel create_channel(ibv_context *device) {
  rdmacommon::unique_comp_channel channel(
      rdmacommon::check_ptr(ibv_create_comp_channel(device), "ibv_create_comp_channel"));
  // Otherwise ibv_get_cq_event would block. The program waits in epoll, which has a time limit.
  const int flags = rdmacommon::check_errno(fcntl(channel->fd, F_GETFL), "fcntl(F_GETFL)");
  rdmacommon::check_errno(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK), "fcntl(O_NONBLOCK)");
  return channel;
}
// [channel]

// [take-event]
// The CQ of the next event in the channel, or null if there is none: the channel does not block.
inline ibv_cq *take_event(ibv_comp_channel *channel) {
  ibv_cq *cq = nullptr;
  void *context = nullptr; // the pointer that ibv_create_cq got for this CQ
  if (ibv_get_cq_event(channel, &cq, &context) != 0) {
    if (errno == EAGAIN)
      return nullptr;
    rdmacommon::throw_errno(errno, "ibv_get_cq_event");
  }
  ibv_ack_cq_events(cq, 1); // without this, ibv_destroy_cq waits forever
  return cq;
}
// [take-event]

struct Side {
  bool is_server;
  std::chrono::milliseconds timeout;
  rdmacommon::Exchange &exchange;
  ibv_comp_channel *channel;
  const Sleep &sleep;
  ibv_cq *received, *sent;
  ibv_qp *qp;
  ibv_cq_ex *extended = nullptr; // `received`, if the program has made it with ibv_create_cq_ex

  // The messages have no bytes: what is looked at here is how one learns that they are there.
  void post_receives(int count) const {
    for (; count > 0; --count)
      rdmacommon::post_recv(qp, {});
  }
  void send(unsigned flags = IBV_SEND_SIGNALED) const {
    rdmacommon::post_send(qp, {.opcode = IBV_WR_SEND, .send_flags = flags});
  }
  // One number, beside an empty message.
  void answer(uint32_t number) const {
    rdmacommon::post_send(qp, {.opcode = IBV_WR_SEND_WITH_IMM,
                               .send_flags = IBV_SEND_SIGNALED,
                               .imm_data = htonl(number)});
    wait_sent();
  }
  uint32_t wait_answer() const {
    const ibv_wc done = wait_for(received, "the answer");
    if (!(done.wc_flags & IBV_WC_WITH_IMM))
      throw rdmacommon::Error("the answer", "it has no immediate data");
    return ntohl(done.imm_data);
  }
  void wait_sent() const { wait_for(sent, "a SEND"); }

private:
  ibv_wc wait_for(ibv_cq *cq, const char *what) const {
    return rdmacommon::wait_for_completion(
        cq, what, std::chrono::duration_cast<std::chrono::seconds>(timeout));
  }
};

// SPDX-License-Identifier: MIT
// The functions of completions.hpp.
#include "rdmacommon/completions.hpp"

#include "wait_for.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace rdmacommon {
unique_comp_channel create_comp_channel(ibv_context *device, Where where) {
  unique_comp_channel channel(
      check_ptr(ibv_create_comp_channel(device), "ibv_create_comp_channel", where));
  const int flags = check_errno(fcntl(channel->fd, F_GETFL), "fcntl(F_GETFL)", where);
  check_errno(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK), "fcntl(O_NONBLOCK)", where);
  return channel;
}

ibv_cq *take_event(ibv_comp_channel *channel, Where where) {
  ibv_cq *cq = nullptr;
  void *context = nullptr;
  if (ibv_get_cq_event(channel, &cq, &context) != 0) {
    if (errno == EAGAIN || errno == EINTR)
      return nullptr;
    throw_errno(errno, "ibv_get_cq_event", where);
  }
  ibv_ack_cq_events(cq, 1);
  return cq;
}

size_t poll_batch(ibv_cq *cq, std::span<ibv_wc> into, Where where) {
  const int room = static_cast<int>(std::min<size_t>(into.size(), 1U << 16U));
  return static_cast<size_t>(check_count(ibv_poll_cq(cq, room, into.data()), "ibv_poll_cq", where));
}

size_t wait_for_completions(ibv_cq *cq, std::span<ibv_wc> into, const char *what,
                            std::chrono::milliseconds timeout, Where where) {
  if (into.empty())
    throw Error(what, "there is no room for a completion", where);
  if (cq->channel == nullptr)
    throw Error(what, "the CQ was made without a completion channel", where);
  const auto deadline = Clock::now() + timeout;
  while (true) {
    if (const size_t count = poll_batch(cq, into, where))
      return count;
    check_rc(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq", where);
    // A completion between the poll and the arming has raised no event.
    if (const size_t count = poll_batch(cq, into, where))
      return count;
    if (Clock::now() >= deadline)
      throw Error(what, "no completion within " + std::to_string(timeout.count()) + " ms", "",
                  where);
    wait_for(cq->channel->fd, POLLIN, deadline);
    while (take_event(cq->channel, where) !=
           nullptr) // also those of earlier calls that did not sleep
      ;
  }
}

} // namespace rdmacommon

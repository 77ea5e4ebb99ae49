// SPDX-License-Identifier: MIT
// Completion channels and rdma_cm's event channels: an event can fail, be lost, or come later.
#pragma once

#include "inject.hpp"

#include <cerrno>

namespace inject {

// Waits for an event as the real call would. @return whether there is one; if not, the real call
// has to say so
bool wait_for_event(int fd);

// On a channel that does not block, the call finds nothing, and the next one gets the event. On one
// that blocks, the call takes a little longer. @return whether the call finds nothing
bool delay(int fd);
// Returns true if this is that next call. Its event is counted already.
bool was_delayed(int fd);

// @param take the real call
// @param drop what acknowledges the event that `take` returned
template <typename Take, typename Drop>
int event(const char *function, int fd, Take take, Drop drop) {
  Call call(function);
  while (active() && wait_for_event(fd) && !was_delayed(fd)) {
    const Verdict verdict = call.count(EIO);
    if (!verdict.fails)
      break;
    if (verdict.how == How::error) {
      call.report(name_of(verdict.error));
      errno = verdict.error;
      return -1;
    }
    if (verdict.how == How::delayed) {
      call.report("delayed");
      if (!delay(fd))
        break;
      errno = EAGAIN;
      return -1;
    }
    call.report("lost");
    if (take())
      return -1;
    drop();
  }
  return take();
}

} // namespace inject

// SPDX-License-Identifier: MIT
// Waits for a completion channel by select(2), poll(2) and epoll(7), where ibv_get_cq_event() comes
// later.

#include "next.hpp"
#include "tracked.hpp"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <map>
#include <poll.h>
#include <set>
#include <sys/epoll.h>
#include <sys/select.h>

namespace lint {
namespace {

// A program that wakes up more often than once in this time looks at its queues anyway.
constexpr int long_wait_ms = 1000;

bool is_long(int timeout) {
  return timeout < 0 || timeout >= long_wait_ms;
}

// Under the lock.
void will_wait_for(int fd) {
  for (const auto &[address, channel] : all<Channel>())
    if (static_cast<const ibv_comp_channel *>(address)->fd == fd)
      will_wait_on(address);
}

// The descriptors that an epoll instance waits for. Under the lock.
std::map<int, std::set<int>> &members() {
  static auto &all = *new std::map<int, std::set<int>>;
  return all;
}

void will_poll(const pollfd *fds, nfds_t count, int timeout) {
  if (LibraryScope::active() || !is_long(timeout))
    return;
  const Locked lock;
  for (nfds_t i = 0; i < count; ++i)
    will_wait_for(fds[i].fd);
}

void will_wait_in(int epoll, int timeout) {
  if (LibraryScope::active() || !is_long(timeout))
    return;
  const Locked lock;
  for (const int fd : members()[epoll])
    will_wait_for(fd);
}

void will_select(int count, const fd_set *fds, int timeout) {
  if (!fds || LibraryScope::active() || !is_long(timeout))
    return;
  const Locked lock;
  for (int fd = 0; fd < std::min(count, FD_SETSIZE); ++fd)
    if (FD_ISSET(fd, fds))
      will_wait_for(fd);
}

// @param timeout a timespec or a timeval; null for a wait without an end
template <typename Time> int in_ms(const Time *timeout) {
  return timeout ? static_cast<int>(std::min<time_t>(timeout->tv_sec, 1'000'000) * 1000) : -1;
}

// A new epoll instance is empty, also where its number was that of another one.
int made_epoll(int epoll) {
  if (epoll >= 0 && !LibraryScope::active()) {
    const Locked lock;
    members().erase(epoll);
  }
  return epoll;
}

} // namespace

// A closed descriptor leaves its epoll instances, and the channel may have its number.
void will_not_wait_for(int fd) {
  for (auto &[epoll, fds] : members())
    fds.erase(fd);
}

} // namespace lint

using namespace lint;

extern "C" {

int poll(pollfd *fds, nfds_t count, int timeout) {
  static const auto real = REAL(poll);
  will_poll(fds, count, timeout);
  return real(fds, count, timeout);
}

int ppoll(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask) {
  static const auto real = REAL(ppoll);
  will_poll(fds, count, in_ms(timeout));
  return real(fds, count, timeout, mask);
}

// A program that was built with _FORTIFY_SOURCE calls these in place of poll() and ppoll().
int __poll_chk(pollfd *fds, nfds_t count, int timeout, std::size_t size) {
  static const auto real = preload::next<int(pollfd *, nfds_t, int, std::size_t)>("__poll_chk");
  will_poll(fds, count, timeout);
  return real(fds, count, timeout, size);
}

int __ppoll_chk(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask,
                std::size_t size) {
  static const auto real =
      preload::next<int(pollfd *, nfds_t, const timespec *, const sigset_t *, std::size_t)>(
          "__ppoll_chk");
  will_poll(fds, count, in_ms(timeout));
  return real(fds, count, timeout, mask, size);
}

int select(int count, fd_set *reads, fd_set *writes, fd_set *others, timeval *timeout) {
  static const auto real = REAL(select);
  will_select(count, reads, in_ms(timeout));
  return real(count, reads, writes, others, timeout);
}

int pselect(int count, fd_set *reads, fd_set *writes, fd_set *others, const timespec *timeout,
            const sigset_t *mask) {
  static const auto real = REAL(pselect);
  will_select(count, reads, in_ms(timeout));
  return real(count, reads, writes, others, timeout, mask);
}

int epoll_create(int size) noexcept {
  static const auto real = REAL(epoll_create);
  return made_epoll(real(size));
}

int epoll_create1(int flags) noexcept {
  static const auto real = REAL(epoll_create1);
  return made_epoll(real(flags));
}

int epoll_ctl(int epoll, int what, int fd, epoll_event *event) noexcept {
  static const auto real = REAL(epoll_ctl);
  const int result = real(epoll, what, fd, event);
  if (!result && !LibraryScope::active()) {
    const Locked lock;
    if (what == EPOLL_CTL_ADD)
      members()[epoll].insert(fd);
    else if (what == EPOLL_CTL_DEL)
      members()[epoll].erase(fd);
  }
  return result;
}

int epoll_wait(int epoll, epoll_event *events, int count, int timeout) {
  static const auto real = REAL(epoll_wait);
  will_wait_in(epoll, timeout);
  return real(epoll, events, count, timeout);
}

int epoll_pwait(int epoll, epoll_event *events, int count, int timeout, const sigset_t *mask) {
  static const auto real = REAL(epoll_pwait);
  will_wait_in(epoll, timeout);
  return real(epoll, events, count, timeout, mask);
}

} // extern "C"

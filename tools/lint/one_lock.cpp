// SPDX-License-Identifier: MIT
// The lock, the work that is put off until it is free, and what fork() does with both.

#include "one_lock.hpp"

#include <cerrno>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace lint {
namespace {

using Work = std::vector<std::function<void()>>;

thread_local bool in_library = false, holds = false, before_fork = false;

std::mutex &mutex() {
  static auto &its = *new std::mutex;
  return its;
}

Work &put_off() {
  thread_local Work work;
  return work;
}

Work &children() {
  static auto &work = *new Work;
  return work;
}

// Handlers of other libraries run while the lock is held, and may free memory.
[[maybe_unused]] const int at_fork = pthread_atfork(
    [] {
      mutex().lock();
      before_fork = in_library;
      in_library = true;
    },
    [] {
      in_library = before_fork;
      mutex().unlock();
    },
    [] {
      for (const auto &work : children())
        work();
      in_library = before_fork;
      mutex().unlock();
    });

} // namespace

pid_t thread_id() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

LibraryScope::LibraryScope() : before_(in_library), errno_(errno) {
  in_library = true;
}

LibraryScope::~LibraryScope() {
  in_library = before_;
  errno = errno_;
}

bool LibraryScope::active() {
  return in_library;
}

Locked::Locked() {
  mutex().lock();
  holds = true;
}

Locked::~Locked() {
  holds = false;
  mutex().unlock();
  const Work work = std::move(put_off());
  put_off().clear();
  for (const auto &one : work)
    one();
}

void without_lock(std::function<void()> work) {
  if (holds)
    put_off().push_back(std::move(work));
  else
    work();
}

void at_child(std::function<void()> work) {
  children().push_back(std::move(work));
}

} // namespace lint

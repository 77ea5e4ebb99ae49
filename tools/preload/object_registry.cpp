// SPDX-License-Identifier: MIT
// The lock of what is remembered, and what fork() does with it.

#include "object_registry.hpp"

#include <pthread.h>

namespace preload {

std::mutex &lock_of_all() {
  static auto &lock = *new std::mutex;
  return lock;
}

[[maybe_unused]] static const int at_fork = pthread_atfork(
    [] { lock_of_all().lock(); }, [] { lock_of_all().unlock(); }, [] { lock_of_all().unlock(); });

} // namespace preload

// SPDX-License-Identifier: MIT
// The one lock of what the library knows, and what may not happen while a thread holds it.
//
// No thread calls a real library's function under the lock, and none asks the dynamic loader for
// names: the loader has a lock of its own, and frees memory under it, through our free().
#pragma once

#include <functional>
#include <mutex>
#include <sys/types.h>

namespace lint {

pid_t thread_id();

// Marks the time in which a thread runs the library's own code. Memory that the thread then frees
// is the library's, and free() does not look at it. The end of the scope restores errno.
class LibraryScope {
public:
  LibraryScope();
  ~LibraryScope();
  LibraryScope(const LibraryScope &) = delete;
  LibraryScope &operator=(const LibraryScope &) = delete;
  static bool active(); // on this thread

private:
  bool before_;
  int errno_;
};

// Holds the lock, which is not recursive. At its end it does what was put off.
class Locked {
public:
  Locked();
  ~Locked();
  Locked(const Locked &) = delete;
  Locked &operator=(const Locked &) = delete;

private:
  const LibraryScope library_scope_;
};

// Does `work` now, or when this thread gives the lock back.
void without_lock(std::function<void()> work);

// Removes something that a child of fork() must not inherit. Called in the child, under the lock.
void at_child(std::function<void()> work);

} // namespace lint

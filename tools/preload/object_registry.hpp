// SPDX-License-Identifier: MIT
// The library's record of the program's objects, found by their addresses.
//
// Nothing is forgotten when its object goes: another thread may get the same address for a new
// object before we would come to it. A new object takes the place of the old one, so there is never
// more than the program had at once.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

namespace preload {

// One lock for all of it. fork() takes it and gives it back on both sides, so that a child does not
// inherit it from some other thread. (A shared_mutex would not do: the child would wait for the
// readers that it counts.)
std::mutex &lock_of_all();

template <typename T> class Kept {
public:
  // Returns what is kept about `object`; null if that is nothing.
  T *find(const void *object) const {
    const std::lock_guard lock(lock_of_all());
    const auto found = of_.find(object);
    return found == of_.end() ? nullptr : found->second.get();
  }

  // The same, made if need be.
  T &at(const void *object) {
    if (T *found = find(object))
      return *found;
    const std::lock_guard lock(lock_of_all());
    auto &kept = of_[object];
    if (!kept)
      kept = std::make_unique<T>();
    return *kept;
  }

  // For a new object, which may have an old one's address.
  T &renew(const void *object) {
    auto fresh = std::make_unique<T>();
    const std::lock_guard lock(lock_of_all());
    return *(of_[object] = std::move(fresh));
  }

private:
  std::unordered_map<const void *, std::unique_ptr<T>> of_;
};

// Never destroyed: programs destroy verbs objects while they exit.
template <typename T> Kept<T> &kept() {
  static auto &all = *new Kept<T>;
  return all;
}

} // namespace preload

// SPDX-License-Identifier: MIT
// Runs the slot ring's own code, slots.cpp, step by step: a step is one atomic load, store or
// change of a word in shared memory, a system call of futex(2), or one of the doorbell. Before each
// step the explorer (explorer.hpp) decides which thread goes on. The threads are coroutines of one
// thread, so a schedule can be repeated.
//
// Include this file in place of <atomic>, and then the ring's sources. All steps are sequentially
// consistent here: the model says nothing about weaker memory orders. ring_threads under the thread
// sanitizer does.
#pragma once

// All that the ring's sources include: `atomic` has another meaning behind this point.
#include "rdmacommon/check.hpp"
#include "rdmacommon/processes.hpp"
#include "rdmacommon/stopwatch.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace model {

// Of the explorer. A word outside of the ring's memory is no step: nobody else sees it.
bool is_shared(const void *word);
void before_step();            // the explorer may let others go on here
void observed(uint64_t value); // by this thread: what it does next depends on it
void settled(uint64_t where);  // what was observed since forget_all_but() does not matter any more
void changed();                // by this thread, which others can see
long sleep_on(const void *word, bool is_still_so);
long wake_sleepers(const void *word, uint32_t count);
void ring_doorbell();
bool take_doorbell();

// What std::atomic is in the ring's sources.
template <typename T> class Word {
public:
  static constexpr bool is_always_lock_free = true;
  Word() = default;
  Word(T value) : value_(value) {}
  Word(const Word &) = delete;
  Word &operator=(const Word &) = delete;
  T operator=(T value) {
    store(value);
    return value;
  }

  T load(std::memory_order = std::memory_order_seq_cst) const {
    step();
    return seen(value_);
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    step();
    seen(T{});
    set(value);
  }
  bool compare_exchange_strong(T &expected, T wanted, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) {
    step();
    if (seen(value_) == expected) {
      set(wanted);
      return true;
    }
    expected = value_;
    return false;
  }
  bool compare_exchange_weak(T &expected, T wanted, std::memory_order = std::memory_order_seq_cst,
                             std::memory_order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, wanted);
  }
  T fetch_add(T more, std::memory_order = std::memory_order_seq_cst) {
    return change([more](T value) { return static_cast<T>(value + more); });
  }
  T fetch_sub(T less, std::memory_order = std::memory_order_seq_cst) {
    return change([less](T value) { return static_cast<T>(value - less); });
  }
  T fetch_or(T bits, std::memory_order = std::memory_order_seq_cst) {
    // claim() and wake() say so of `room`. Their observations before do not matter any more.
    if (bits == 1)
      settled(1);
    return change([bits](T value) { return static_cast<T>(value | bits); });
  }

private:
  void step() const {
    if (is_shared(this))
      before_step();
  }
  T seen(T value) const {
    if (is_shared(this))
      observed(static_cast<uint64_t>(value));
    return value;
  }
  void set(T value) {
    value_ = value;
    if (is_shared(this))
      changed();
  }
  template <typename Change> T change(Change change) {
    step();
    const T before = seen(value_);
    set(change(before));
    return before;
  }

  T value_;
};

template <typename T> class WordRef {
public:
  explicit WordRef(T &word) : word_(word) {}
  T load(std::memory_order = std::memory_order_seq_cst) const {
    before_step();
    observed(static_cast<uint64_t>(word_));
    return word_;
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) const {
    before_step();
    observed(0);
    changed();
    word_ = value;
  }

private:
  T &word_;
};

inline long futex(long, uint32_t *word, int operation, uint32_t value, const timespec *, void *,
                  int) {
  before_step();
  if (operation == FUTEX_WAKE)
    return wake_sleepers(word, value);
  settled(2); // claim() begins anew, asleep before or not
  return sleep_on(word, *word == value);
}

inline ssize_t write_doorbell(int, const void *, size_t size) {
  before_step();
  ring_doorbell();
  return static_cast<ssize_t>(size);
}

inline ssize_t read_doorbell(int, void *, size_t size) {
  before_step();
  if (take_doorbell())
    return static_cast<ssize_t>(size);
  errno = EAGAIN;
  return -1;
}

} // namespace model

// The ring's sources say std::atomic.
namespace std {
template <typename T> using scheduled_word = model::Word<T>;
template <typename T> struct scheduled_ref : model::WordRef<T> {
  explicit scheduled_ref(T &word) : model::WordRef<T>(word) {}
};
} // namespace std
#define atomic scheduled_word
#define atomic_ref scheduled_ref
#define syscall model::futex
#define write model::write_doorbell
#define read model::read_doorbell

// SPDX-License-Identifier: MIT
// Runs the functions of bells.hpp step by step: a step is one atomic load, store or change of a
// word in shared memory, a sleep, or a wake. Before each step the explorer (explorer.hpp) decides
// which thread goes on. The threads are coroutines of one thread, so a schedule can be repeated.
//
// Include this file in place of <atomic>, and then bells.hpp. All steps are sequentially consistent
// here: the model says nothing about weaker memory orders. The thread sanitizer does
// (area_threads.cpp).
#pragma once

// All that bells.hpp includes: `atomic` has another meaning behind this point.
#include <atomic>
#include <cstdint>

namespace model {

// Functions of the explorer. A word outside of shared memory is no step: nobody else sees it.
bool is_shared(const void *word);
void before_step();            // the explorer may let others go on here
void observed(uint64_t value); // by this thread: what it does next depends on it
void changed();                // by this thread, which others can see
long sleep_on(const void *word, bool is_still_so);
long wake_sleepers(const void *word, uint32_t count);

// Stands in for std::atomic in bells.hpp.
template <typename T> class Word {
public:
  Word() = default;
  Word(const Word &) = delete;
  Word &operator=(const Word &) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const {
    step();
    return seen(value_);
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    step();
    seen(T{});
    set(value);
  }
  T fetch_add(T more) {
    step();
    const T before = seen(value_);
    set(static_cast<T>(before + more));
    return before;
  }
  T peek() const { return value_; } // no step

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

  T value_;
};

} // namespace model

// bells.hpp says std::atomic.
namespace std {
template <typename T> using scheduled_word = model::Word<T>;
} // namespace std
#define atomic scheduled_word

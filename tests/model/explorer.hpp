// SPDX-License-Identifier: MIT
// Explores all schedules of a few threads: in each state, each thread that can go on does so, and
// each thread that may die does so. A state that has been reached before is not explored again.
//
// A death matters where a thread has changed something, or has slept. A thread that has only looked
// since might as well have died before it looked. So a thread dies only there.
//
// A thread is a coroutine, and depends on nothing but what it has observed. So a state is the
// shared memory, and for each thread what it has observed. To get back to a state, the explorer
// starts from the beginning and repeats the choices that led there.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <ucontext.h>

namespace model {

class Failure : public std::exception {
public:
  explicit Failure(std::string what) : what_(std::move(what)) {}
  const char *what() const noexcept override { return what_.c_str(); }

private:
  std::string what_;
};

struct Thread {
  enum class State { can_go_on, sleeps, waits, has_ended, is_dead };

  std::string name;
  std::function<void()> body;
  bool may_die = false;

  State state = State::can_go_on;
  std::function<bool()> until; // the condition that a waiting thread waits for
  const void *sleeps_on = nullptr;
  uint64_t history = 0, base = 0; // hashes of what it has observed, and of what it had settled
  bool has_begun = false, has_changed = true; // something that others see, by its last step
  std::unique_ptr<char[]> stack;
  jmp_buf here;
};

// One run of all threads, from the beginning. A scenario derives from it.
class World {
public:
  virtual ~World() = default;
  std::vector<std::unique_ptr<Thread>> threads; // in the order of their names in a schedule
  uint32_t deaths_left = 0;
  // Interruptions that are still allowed, of threads that can go on. Most races need two or three.
  static constexpr uint32_t any_number = UINT32_MAX;
  uint32_t interruptions_left = any_number;
  size_t latest = 0; // the thread that took the last step
  // The rest of the state.
  virtual uint64_t shared_hash() const = 0;
  virtual void died(Thread &) {}
  // No thread can go on. @throws Failure if that should not be
  virtual void check_end() = 0;
};

struct Explored {
  uint64_t states = 0, runs = 0, steps = 0, ends = 0;
  std::string failure; // with the schedule; empty: there is none
};

// @param make a world, the same each time
// @param limit of states: then the failure says that there are more
Explored explore(const std::function<std::unique_ptr<World>()> &make, uint64_t limit);

// For the world's threads.
void wait_until(std::function<bool()> is_so); // no step: asked whenever the explorer looks
// The thread's observations do not matter any more, except for this.
void forget_all_but(uint64_t what);
uint64_t mix(uint64_t hash, uint64_t more);
void set_shared(const void *begin, size_t size);
bool is_running(); // true in a thread of a world, false in the explorer

} // namespace model

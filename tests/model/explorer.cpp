// SPDX-License-Identifier: MIT
// See explorer.hpp. And what scheduled.hpp needs of it.
#include "explorer.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace model {
namespace {

constexpr size_t stack_size = 64 * 1024;

Thread *running = nullptr;
World *world = nullptr;
jmp_buf explorer_here;
std::vector<std::unique_ptr<char[]>> spare_stacks;
const char *shared_begin = nullptr;
size_t shared_size = 0;
std::string failure_in_thread;

using State = Thread::State;

// Back to the explorer. It comes back here when it has chosen this thread.
void pause() {
  if (_setjmp(running->here) == 0)
    _longjmp(explorer_here, 1);
}

void thread_main() {
  try {
    running->body();
  } catch (const std::exception &error) {
    failure_in_thread = running->name + ": " + error.what();
  }
  running->state = State::has_ended;
  running->history = 0;
  _longjmp(explorer_here, 1);
}

// Lets a thread take its step, and everything up to its next one.
void go_on(Thread &thread) {
  running = &thread;
  if (_setjmp(explorer_here) == 0) {
    if (thread.has_begun)
      _longjmp(thread.here, 1);
    thread.has_begun = true;
    if (spare_stacks.empty())
      spare_stacks.push_back(std::make_unique<char[]>(stack_size));
    thread.stack = std::move(spare_stacks.back());
    spare_stacks.pop_back();
    ucontext_t begin{};
    getcontext(&begin);
    begin.uc_stack.ss_sp = thread.stack.get();
    begin.uc_stack.ss_size = stack_size;
    begin.uc_link = nullptr;
    makecontext(&begin, thread_main, 0);
    setcontext(&begin);
  }
  running = nullptr;
}

bool can_go_on(const Thread &thread) {
  return thread.state == State::can_go_on || (thread.state == State::waits && thread.until());
}

struct Choice {
  size_t thread;
  bool dies;
};

bool is_interruption(const World &now, size_t next) {
  return next != now.latest && can_go_on(*now.threads[now.latest]);
}

std::vector<Choice> choices_in(const World &now) {
  std::vector<Choice> choices;
  for (size_t i = 0; i < now.threads.size(); ++i) {
    const Thread &thread = *now.threads[i];
    if (can_go_on(thread) && (now.interruptions_left > 0 || !is_interruption(now, i)))
      choices.push_back({i, false});
    if (now.deaths_left > 0 && thread.may_die && thread.has_changed &&
        thread.state != State::has_ended && thread.state != State::is_dead)
      choices.push_back({i, true});
  }
  return choices;
}

uint64_t hash_of(const World &now) {
  uint64_t hash = now.shared_hash();
  for (const auto &thread : now.threads)
    hash = mix(mix(hash, thread->history), uint64_t{thread->has_begun} << 9 |
                                               uint64_t{thread->has_changed} << 8 |
                                               static_cast<uint64_t>(thread->state));
  if (now.interruptions_left != World::any_number)
    hash = mix(mix(hash, now.interruptions_left), now.latest);
  return mix(hash, now.deaths_left);
}

void take(World &now, Choice choice) {
  Thread &thread = *now.threads[choice.thread];
  if (choice.dies) {
    --now.deaths_left;
    thread.state = State::is_dead;
    thread.history = 0;
    thread.has_changed = false;
    now.died(thread);
    return;
  }
  if (now.interruptions_left != World::any_number && is_interruption(now, choice.thread))
    --now.interruptions_left;
  now.latest = choice.thread;
  thread.state = State::can_go_on;
  thread.has_changed = false;
  go_on(thread);
  if (!failure_in_thread.empty())
    throw Failure(std::exchange(failure_in_thread, ""));
}

struct Branch {
  std::vector<Choice> choices;
  size_t next = 0;
};

// "A A A B †A": who took each step, and who died.
std::string words_of(const World &now, const std::vector<Branch> &path) {
  std::string words;
  for (const Branch &branch : path) {
    const Choice choice = branch.choices[branch.next];
    words += (choice.dies ? " +" : " ") + now.threads[choice.thread]->name;
  }
  return words;
}

} // namespace

uint64_t mix(uint64_t hash, uint64_t more) {
  hash ^= more + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccd;
  return hash ^ hash >> 33;
}

Explored explore(const std::function<std::unique_ptr<World>()> &make, uint64_t limit) {
  Explored result;
  std::unordered_set<uint64_t> known;
  std::vector<Branch> path; // the choices of this run, and those that are left in each state
  do {
    ++result.runs;
    const std::unique_ptr<World> now = make();
    world = now.get();
    try {
      for (size_t depth = 0;; ++depth, ++result.steps) {
        if (depth == path.size()) { // a state that this run is the first to reach
          if (!known.insert(hash_of(*now)).second)
            break;
          if (++result.states > limit)
            throw Failure("there are more states than " + std::to_string(limit));
          path.push_back({.choices = choices_in(*now)});
          if (path.back().choices.empty()) {
            path.pop_back();
            ++result.ends;
            now->check_end();
            break;
          }
        }
        take(*now, path[depth].choices[path[depth].next]);
      }
    } catch (const std::exception &failure) {
      result.failure = std::string(failure.what()) + "; schedule:" + words_of(*now, path);
    }
    for (const auto &thread : now->threads)
      if (thread->stack)
        spare_stacks.push_back(std::move(thread->stack));
    while (!path.empty() && ++path.back().next == path.back().choices.size())
      path.pop_back();
  } while (!path.empty() && result.failure.empty());
  return result;
}

void wait_until(std::function<bool()> is_so) {
  running->until = std::move(is_so);
  running->state = State::waits;
  pause();
}

void forget_all_but(uint64_t what) {
  running->base = running->history = mix(0, what);
}

void set_shared(const void *begin, size_t size) {
  shared_begin = static_cast<const char *>(begin);
  shared_size = size;
}

bool is_running() {
  return running != nullptr;
}

// ---- for scheduled.hpp

bool is_shared(const void *word) {
  const auto *at = static_cast<const char *>(word);
  return at >= shared_begin && at < shared_begin + shared_size;
}

void before_step() {
  if (running != nullptr)
    pause();
}

void observed(uint64_t value) {
  if (running != nullptr)
    running->history = mix(running->history, value);
}

void settled(uint64_t where) {
  if (running != nullptr)
    running->history = mix(running->base, where);
}

void changed() {
  if (running != nullptr)
    running->has_changed = true;
}

long sleep_on(const void *word, bool is_still_so) {
  if (!is_still_so) {
    errno = EAGAIN;
    return -1;
  }
  running->state = State::sleeps;
  running->sleeps_on = word;
  changed();
  pause(); // until wake_sleepers()
  return 0;
}

long wake_sleepers(const void *word, uint32_t count) {
  long woken = 0;
  if (world != nullptr)
    for (const auto &thread : world->threads)
      if (thread->state == State::sleeps && thread->sleeps_on == word &&
          static_cast<uint32_t>(woken) < count) {
        thread->state = State::can_go_on;
        thread->has_changed = true;
        ++woken;
      }
  observed(static_cast<uint64_t>(woken));
  changed();
  return woken;
}

} // namespace model

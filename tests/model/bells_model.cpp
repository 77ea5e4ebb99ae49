// SPDX-License-Identifier: MIT
// Explores how workers and their sender sleep and wake each other: all schedules of bells.hpp's own
// functions (scheduled.hpp), with a worker that may die at each step.
//
// Checked in each end, where no thread can go on:
// - No worker sleeps: each has its answers.
// - The sender has answered all that the living have submitted.
//
// Usage: bells_model [--is-wrong]. Exit status 1, and the schedule, if something does not hold.
// With --is-wrong, as for a copy of bells.hpp with a mistake in it, exit status 1 if everything
// holds.
#include "explorer.hpp"
#include "scheduled.hpp"

#include BELLS_HPP // bells.hpp, or a copy with a mistake in it

#include <cstdio>
#include <cstring>
#include <new>
#include <string>

namespace {

constexpr uint32_t most_workers = 3;
constexpr uint64_t limit = 3'000'000; // states: an exploration that does not end is a failure, too

struct Scenario {
  const char *name;
  uint32_t workers, requests; // requests of each worker, one after the other
  uint32_t deaths;
  uint32_t interruptions = model::World::any_number; // limit for those of threads that can go on
};

const Scenario scenarios[] = {
    {"one worker, two requests", 1, 2, 0},
    {"one worker, three requests, which may die", 1, 3, 1},
    {"two workers, a request each, one may die", 2, 1, 1},
    {"two workers, two requests each", 2, 2, 0, 4},
    {"three workers, a request each, one may die", 3, 1, 1, 3},
};

struct Shared { // zeros in the beginning
  model::Word<uint32_t> is_asleep, bell;
  struct Area {
    model::Word<uint32_t> submitted, sleeps, answered;
  } areas[most_workers];
};
Shared memory;
bool has_rung; // a worker has rung for the sender, which has not noticed yet

class Bells : public model::World {
public:
  explicit Bells(const Scenario &scenario) : scenario_(scenario) {
    std::memset(static_cast<void *>(&memory), 0, sizeof memory);
    has_rung = false;
    deaths_left = scenario.deaths;
    interruptions_left = scenario.interruptions;
    model::set_shared(&memory, sizeof memory);
    for (uint32_t i = 0; i < scenario.workers; ++i)
      add(std::string(1, static_cast<char>('A' + i)), [this, i] { work(i); }).may_die = true;
    add("sender", [this] { send(); });
  }

  uint64_t shared_hash() const override {
    uint64_t hash = has_rung;
    const auto *words = reinterpret_cast<const uint32_t *>(&memory);
    for (size_t i = 0; i < sizeof memory / sizeof *words; ++i)
      hash = model::mix(hash, words[i]);
    return hash;
  }

  void check_end() override {
    using State = model::Thread::State;
    for (uint32_t i = 0; i < scenario_.workers; ++i) {
      const Shared::Area &area = memory.areas[i];
      const model::Thread &worker = *threads[i];
      if (worker.state == State::is_dead)
        continue; // another thread of the sender's process sees that, and wakes the sender
      if (area.submitted.peek() != area.answered.peek())
        throw model::Failure("the sender sleeps, and " + worker.name + " has submitted a request");
      if (worker.state != State::has_ended)
        throw model::Failure(worker.name + " sleeps, and has its answer");
    }
  }

private:
  model::Thread &add(const std::string &name, std::function<void()> body) {
    auto &thread = threads.emplace_back(std::make_unique<model::Thread>());
    thread->name = name;
    thread->body = std::move(body);
    thread->history = threads.size();
    return *thread;
  }

  // As CallerArea does it.
  void work(uint32_t index) {
    Shared::Area &area = memory.areas[index];
    for (uint32_t number = 1; number <= scenario_.requests; ++number) {
      model::forget_all_but(number);
      rdmashared::publish(area.submitted, number, memory.is_asleep, [] {
        model::before_step();
        model::observed(0);
        model::changed();
        has_rung = true;
      });
      model::forget_all_but(number << 8);
      rdmashared::sleep_until(
          memory.bell, area.sleeps, [&] { return area.answered.load() == number; },
          [&](uint32_t seen) {
            model::before_step();
            model::sleep_on(&area, memory.bell.peek() == seen);
            model::forget_all_but(number << 8); // asleep before or not
            return true;
          });
    }
  }

  // As SenderLoop does it, with a server that answers at once.
  void send() {
    uint32_t taken[most_workers] = {};
    for (;;) {
      uint64_t known = 0;
      for (const uint32_t each : taken)
        known = known << 8 | each;
      model::forget_all_but(known);
      if (!answer(taken))
        rdmashared::sleep_unless(
            memory.is_asleep,
            [&] {
              for (uint32_t i = 0; i < scenario_.workers; ++i)
                if (memory.areas[i].submitted.load() != taken[i])
                  return true;
              return false;
            },
            [] {
              model::wait_until([] { return has_rung; });
              has_rung = false;
              model::observed(1);
              model::changed();
            });
    }
  }

  // @return false if there was nothing
  bool answer(uint32_t *taken) {
    uint32_t touched = 0, to_wake = 0;
    for (uint32_t i = 0; i < scenario_.workers; ++i) {
      const uint32_t count = memory.areas[i].submitted.load();
      if (count == taken[i])
        continue;
      taken[i] = count;
      memory.areas[i].answered.store(count);
      touched |= 1U << i;
    }
    for (uint32_t i = 0; i < scenario_.workers; ++i)
      if ((touched >> i & 1) != 0 && rdmashared::must_wake(memory.areas[i].sleeps))
        to_wake |= 1U << i;
    if (to_wake != 0) {
      memory.bell.fetch_add(1);
      model::before_step(); // one call of futex(2) for those whose bits are set
      for (uint32_t i = 0; i < scenario_.workers; ++i)
        if ((to_wake >> i & 1) != 0)
          model::wake_sleepers(&memory.areas[i], 1);
    }
    return touched != 0;
  }

  const Scenario &scenario_;
};

bool explore(const Scenario &scenario) {
  const model::Explored found =
      model::explore([&] { return std::make_unique<Bells>(scenario); }, limit);
  std::printf(
      "%-48s %8llu states, %8llu runs, %9llu steps, %6llu ends%s%s\n", scenario.name,
      static_cast<unsigned long long>(found.states), static_cast<unsigned long long>(found.runs),
      static_cast<unsigned long long>(found.steps), static_cast<unsigned long long>(found.ends),
      found.failure.empty() ? "" : "\nFAILED: ", found.failure.c_str());
  std::fflush(stdout);
  return found.failure.empty();
}

} // namespace

int main(int argc, char **argv) {
  const bool is_wrong = argc == 2 && std::strcmp(argv[1], "--is-wrong") == 0;
  bool holds = true;
  for (const Scenario &scenario : scenarios) {
    holds &= explore(scenario);
    if (is_wrong && !holds)
      return 0;
  }
  return holds && !is_wrong ? 0 : 1;
}

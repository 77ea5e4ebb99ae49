// SPDX-License-Identifier: MIT
// Explores the slot ring: the schedules of a few workers and their consumer, with deaths at each
// step. See scheduled.hpp: it is the ring's own code that runs. The smallest scenarios have all
// schedules. The others have those with two or three interruptions: a thread that sleeps or ends is
// none.
//
// Checked in each end, where no thread can go on:
// - No message is lost or comes twice, and each is whole.
// - Nobody sleeps: the consumer has taken everything, and no worker waits for room.
// - All slots are free again, also those of a worker that died.
//
// Usage: ring_model [SCENARIO]. Exit status 1, and the schedule, if something does not hold. With
// --is-wrong, as for a copy of the ring with a mistake in it, exit status 1 if everything holds.
#include "explorer.hpp"
#include "scheduled.hpp"

// A run begins with the consumer's position at 0: a new object would map the memory anew, which
// takes much longer than the run. All headers of the standard library have been included.
#define private public
#include "rdmacommon/slot_ring.hpp"
#undef private
#include SLOTS_CPP // the ring's slots.cpp, or a copy with a mistake in it
#include "slot_segment.cpp"

#include <sys/eventfd.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>

using namespace rdmacommon;

namespace {

struct Scenario {
  const char *name;
  uint32_t slots;
  std::vector<std::vector<uint32_t>> workers; // of each: the slots of its messages
  uint32_t deaths;
  uint32_t holders; // threads that the first message is left to: each gives it back
  uint32_t quota;
  uint32_t interruptions = 2; // of threads that could go on
};

constexpr uint32_t all = model::World::any_number;
const Scenario scenarios[] = {
    {"two workers, a message each, one dies", 2, {{1}, {1}}, 1, 0, 0, all},
    {"two workers, a message each, both die", 2, {{1}, {1}}, 2, 0, 0, all},
    {"a ring of one slot, two messages each", 1, {{1, 1}, {1, 1}}, 0, 0, 0},
    {"a ring of one slot, one dies", 1, {{1, 1}, {1}}, 1, 0, 0},
    {"messages that do not fit before the end", 4, {{3}, {2}}, 1, 0, 0},
    {"a quota of one slot, one dies", 2, {{1, 1}, {1}}, 1, 0, 1},
    {"a message that is passed", 2, {{1, 1, 1}}, 0, 1, 0},
    {"a message that two give back", 2, {{1, 1, 1}}, 0, 2, 0},
    {"a message of two slots that two give back", 4, {{2, 1, 1, 1}}, 0, 2, 0, 3},
};
constexpr uint64_t limit = 3'000'000; // states: an exploration that does not end is a failure, too

constexpr uint32_t slot_size = 64;

struct Segment { // one for all runs: only what they have written is cleared between them
  explicit Segment(const RingShape &shape)
      : memory(SlotRing::make(shape)),
        raw(memory.get(), static_cast<size_t>(lseek(memory.get(), 0, SEEK_END))),
        header(static_cast<RingHeader *>(raw.data())), layout(header->layout),
        begin(static_cast<char *>(raw.data()), static_cast<char *>(raw.data()) + used()),
        ring(memory.get(), -1) {}
  size_t used() const { return layout.controls + layout.shape.slots * sizeof(SlotControl); }
  std::byte *base() const { return static_cast<std::byte *>(raw.data()); }
  SlotsHeld *held() const { return reinterpret_cast<SlotsHeld *>(base() + layout.held); }
  void clear() {
    ring.next_ = 0;
    std::memcpy(base(), begin.data(), begin.size());
    std::memset(base() + layout.data, 0, size_t{layout.shape.slots} * slot_size);
    if (layout.shape.quota != 0)
      for (uint32_t worker = 0; worker < 8; ++worker)
        held()[worker].slots = 0;
  }

  File memory;
  SharedMemory raw;
  RingHeader *header;
  RingLayout layout;
  std::vector<char> begin;
  SlotRing ring; // one object is enough: only the consumer uses what is its own
};

bool has_rung = false;

class Ring : public model::World {
public:
  Ring(const Scenario &scenario, Segment &segment)
      : scenario_(scenario), segment_(segment), ring_(segment.ring) {
    segment_.clear();
    has_rung = false;
    deaths_left = scenario.deaths;
    interruptions_left = scenario.interruptions;
    const auto *base = ring_.data().data() - segment.layout.data;
    model::set_shared(base, segment.layout.length);
    for (uint32_t i = 0; i < scenario.workers.size(); ++i)
      add(std::string(1, static_cast<char>('A' + i)), [this, i] { work(i); }).may_die = true;
    add("consumer", [this] { consume(); });
    runs_.resize(scenario.holders);
    for (uint32_t i = 0; i < scenario.holders; ++i)
      add("holder" + std::to_string(i), [this, i] { hold(i); });
  }
  Ring(const Ring &) = delete;
  Ring &operator=(const Ring &) = delete;

  uint64_t shared_hash() const override {
    uint64_t hash = has_rung;
    const auto add = [&hash](const void *from, size_t size) {
      const auto *bytes = static_cast<const std::byte *>(from);
      for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t number;
        std::memcpy(&number, bytes + at, sizeof number);
        hash = model::mix(hash, number);
      }
    };
    const size_t words = sizeof(RingLayout);
    add(segment_.base() + words, segment_.used() - words);
    for (uint32_t slot = 0; slot < segment_.layout.shape.slots; ++slot)
      add(segment_.base() + segment_.layout.data + size_t{slot} * slot_size, 8);
    if (scenario_.quota != 0)
      for (uint32_t worker = 0; worker <= scenario_.workers.size(); ++worker)
        add(&segment_.held()[worker], 8);
    for (const auto &[message, times] : come_)
      hash = model::mix(hash, uint64_t{message} << 8 | times);
    for (const auto &runs : runs_)
      for (const SlotRun &run : runs)
        hash = model::mix(hash, run.position);
    for (const uint32_t worker : dead_)
      hash = model::mix(hash, worker);
    return hash;
  }

  void died(model::Thread &thread) override { dead_.push_back(thread.name[0] - 'A' + 1U); }

  void check_end() override {
    using State = model::Thread::State;
    for (uint32_t i = 0; i < scenario_.workers.size(); ++i) {
      const model::Thread &worker = *threads[i];
      if (worker.state != State::has_ended && worker.state != State::is_dead)
        throw model::Failure(worker.name + " sleeps, and nobody will wake it");
      for (uint32_t number = 0; number < published_[i + 1]; ++number)
        if (come_[name_of(i + 1, number)] != 1)
          throw model::Failure("a message of " + worker.name +
                               " is lost: the consumer sleeps, or it has passed over it");
    }
    if (!dead_.empty())
      throw model::Failure("the consumer sleeps though a worker has died");
    for (const auto &runs : runs_)
      if (!runs.empty())
        throw model::Failure("a holder has a run");
    // All slots can be claimed: each in turn, wherever the head is, by workers with a quota left.
    for (uint32_t i = 0; i < segment_.layout.shape.slots; ++i) {
      auto claim = ring_.try_claim(4 + i, 8);
      if (!claim)
        throw model::Failure("a slot has not come back");
      if (!claim->publish())
        throw model::Failure("a claim is gone");
    }
    for (uint32_t worker = 1; scenario_.quota != 0 && worker <= scenario_.workers.size(); ++worker)
      if (segment_.held()[worker].slots.load() != 0)
        throw model::Failure("a worker's quota has not come back");
  }

private:
  static constexpr uint32_t name_of(uint32_t worker, uint32_t number) {
    return worker << 16 | (number + 1);
  }

  model::Thread &add(const std::string &name, std::function<void()> body) {
    auto &thread = threads.emplace_back(std::make_unique<model::Thread>());
    thread->name = name;
    thread->body = std::move(body);
    thread->history = threads.size();
    return *thread;
  }

  void work(uint32_t index) {
    const uint32_t worker = index + 1;
    const std::vector<uint32_t> &messages = scenario_.workers[index];
    for (uint32_t number = 0; number < messages.size(); ++number) {
      model::forget_all_but(worker << 8 | number);
      SlotRing::Claim claim =
          ring_.claim(worker, messages[number] * slot_size, std::chrono::hours(10'000));
      model::forget_all_but(claim.position() << 16 | worker << 8 | number);
      const uint32_t name = name_of(worker, number);
      std::memcpy(claim.data().data(), &name, sizeof name);
      if (!claim.publish())
        throw model::Failure("it cannot publish what it has claimed");
      ++published_[worker];
    }
  }

  // As RingHost::wait() and its user do it.
  void consume() {
    for (;;) {
      for (SlotRun run; (run = ring_.take()).count > 0;) {
        uint32_t kept = 0;
        for (uint32_t at = 0; at < run.count;) {
          const SlotMessage message = ring_.message(run, at);
          uint32_t name;
          std::memcpy(&name, message.data.data(), sizeof name);
          if (name >> 16 != message.worker)
            throw model::Failure("a message is torn, or another worker's");
          if (++come_[name] > 1)
            throw model::Failure("a message comes twice");
          if (run.position == 0 && at == message.slots && !runs_.empty()) {
            kept = at;
            for (auto &runs : runs_)
              runs.push_back({.position = 0, .first = 0, .count = at});
          }
        }
        if (kept < run.count)
          ring_.give_back({.position = run.position + kept,
                           .first = run.first + kept,
                           .count = run.count - kept});
        next_ = run.position + run.count;
        model::forget_all_but(next_);
      }
      if (ring_.arm())
        model::wait_until([this] { return has_rung || !dead_.empty(); });
      ring_.disarm();
      // A process that has died is noticed after a sleep, or at one of the looks in between.
      while (!dead_.empty()) {
        const uint32_t worker = dead_.back();
        dead_.pop_back();
        ring_.reclaim(worker);
      }
      model::forget_all_but(next_);
    }
  }

  void hold(uint32_t index) {
    for (;;) {
      model::forget_all_but(index);
      model::wait_until([this, index] { return !runs_[index].empty(); });
      const SlotRun run = runs_[index].front();
      model::forget_all_but(run.position);
      runs_[index].pop_front();
      ring_.give_back(run);
    }
  }

  const Scenario &scenario_;
  Segment &segment_;
  SlotRing &ring_;
  uint64_t next_ = 0;
  std::map<uint32_t, uint32_t> come_, published_;
  std::vector<std::deque<SlotRun>> runs_; // by holder
  std::vector<uint32_t> dead_;            // and not reclaimed
};

bool explore(const Scenario &scenario) {
  Segment segment(
      {.slots = scenario.slots, .slot_size = slot_size, .quota = scenario.quota, .appendix = 0});
  const model::Explored found =
      model::explore([&] { return std::make_unique<Ring>(scenario, segment); }, limit);
  std::printf(
      "%-48s %8llu states, %8llu runs, %9llu steps, %6llu ends%s%s\n", scenario.name,
      static_cast<unsigned long long>(found.states), static_cast<unsigned long long>(found.runs),
      static_cast<unsigned long long>(found.steps), static_cast<unsigned long long>(found.ends),
      found.failure.empty() ? "" : "\nFAILED: ", found.failure.c_str());
  std::fflush(stdout);
  return found.failure.empty();
}

} // namespace

namespace model {
void ring_doorbell() {
  observed(0);
  changed();
  has_rung = true;
}
bool take_doorbell() {
  observed(has_rung);
  return std::exchange(has_rung, false);
}
} // namespace model

int main(int argc, char **argv) {
  const bool is_wrong = argc == 2 && std::strcmp(argv[1], "--is-wrong") == 0;
  bool holds = true;
  for (const Scenario &scenario : scenarios)
    if (argc < 2 || is_wrong || std::strcmp(argv[1], scenario.name) == 0) {
      holds &= explore(scenario);
      if (is_wrong && !holds)
        return 0;
    }
  return holds && !is_wrong ? 0 : 1;
}

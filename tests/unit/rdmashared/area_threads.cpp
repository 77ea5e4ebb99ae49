// SPDX-License-Identifier: MIT
// For the thread sanitizer: threads that sleep on bells and wake each other, with ordinary memory
// between them; and threads of one process that share a Caller. The sanitizer takes two mappings of
// the same memory for two memories, so the first part has one.
#include "bells.hpp"
#include "members.hpp"

#include <rdmacommon/check.hpp>
#include <rdmashared/caller.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

using namespace rdmashared;
using std::chrono::steady_clock;

namespace {

constexpr uint32_t workers = 3, rounds = 20'000;

auto in_time() {
  return steady_clock::now() + std::chrono::minutes(5);
}

void check(bool is_so, const char *what) {
  if (!is_so)
    throw rdmacommon::Error("the test", what);
}

// ---- bells, with plain words between the threads

// The words that one worker shares with the sender.
struct Words {
  std::atomic<uint32_t> submitted{0}, sleeps{0}, answered{0};
  uint32_t request = 0, response = 0;
};
std::array<Words, workers> shared;
std::atomic<uint32_t> is_asleep{0}, sender_bell{0}, bell{0};

void work(uint32_t index) {
  Words &words = shared.at(index);
  for (uint32_t number = 1; number <= rounds; ++number) {
    words.request = number;
    publish(words.submitted, number, is_asleep, [] { ring(sender_bell, ~uint32_t{0}); });
    check(sleep_until(
              bell, words.sleeps,
              [&] { return words.answered.load(std::memory_order_acquire) == number; },
              [&](uint32_t seen) {
                sleep_on(bell, seen, 1U << index, in_time());
                return true;
              }),
          "a worker has given up");
    check(words.response == 2 * number, "the response is to another request");
  }
}

void answer_all() {
  std::array<uint32_t, workers> taken{};
  for (uint32_t left = workers * rounds; left > 0;) {
    const uint32_t seen = sender_bell.load();
    uint32_t to_wake = 0, count = 0;
    for (uint32_t i = 0; i < workers; ++i) {
      Words &words = shared.at(i);
      if (words.submitted.load(std::memory_order_acquire) == taken[i])
        continue;
      ++taken[i];
      ++count;
      words.response = 2 * words.request;
      words.answered.store(taken[i]); // sequentially consistent: the sanitizer knows no fence
      if (must_wake(words.sleeps))
        to_wake |= 1U << i;
    }
    if (to_wake != 0)
      ring(bell, to_wake);
    left -= count;
    if (count == 0)
      sleep_unless(
          is_asleep,
          [&] {
            for (uint32_t i = 0; i < workers; ++i)
              if (shared.at(i).submitted.load() != taken[i])
                return true;
            return false;
          },
          [&] { sleep_on(sender_bell, seen, ~uint32_t{0}, in_time()); });
  }
}

void ring_bells() {
  std::vector<std::jthread> threads;
  for (uint32_t i = 0; i < workers; ++i)
    threads.emplace_back([i] { work(i); });
  answer_all();
}

// ---- threads that share a Caller

constexpr uint32_t each = 2000;

// Answers each request with its own bytes, until the worker has left.
void echo(const Member &member, const std::atomic<bool> &is_over) {
  const Area &area = *member.area;
  for (uint32_t taken = 0; !is_over.load();) {
    if (area.submitted().load(std::memory_order_acquire) == taken) {
      std::this_thread::yield();
      continue;
    }
    const uint32_t slot = area.queued(taken++).load(std::memory_order_relaxed);
    if ((slot & cancels) != 0)
      continue;
    Answer &answer = area.answer(slot);
    answer.length = area.submission(slot).length;
    answer.outcome.store(1 + static_cast<uint32_t>(Outcome::response));
    if (must_wake(area.wants_room()))
      ring(area.room_bell(), ~uint32_t{0});
  }
}

void share_a_caller() {
  const OwnBoard board(1);
  std::promise<Member> joined;
  Members members({.slots = 8, .slot_size = 64, .long_responses = 0, .largest = 0, .longest = 512},
                  {{.board = board.fd(),
                    .joined = [&](Member member) { joined.set_value(std::move(member)); },
                    .left = [](uint32_t) {}}},
                  {}, {});
  auto [mine, theirs] = rdmacommon::make_link();
  members.invite(std::move(mine));
  std::atomic<bool> is_over = false;
  std::jthread sender;
  {
    Caller caller(std::move(theirs), Waiting::poll); // nobody rings the bell for responses here
    sender = std::jthread([&, member = joined.get_future().get()] { echo(member, is_over); });
    std::vector<std::jthread> threads;
    for (uint32_t thread = 0; thread < 4; ++thread)
      threads.emplace_back([&, thread] {
        for (uint32_t i = 0; i < each; ++i) {
          const std::array<uint32_t, 20> words{thread, i};
          const RequestOptions patient{.limit = std::chrono::minutes(5)};
          if (i % 8 == 0) { // nobody waits for it
            caller.try_request_async(std::as_bytes(std::span(words)), patient);
            continue;
          }
          const auto response = caller.request(std::as_bytes(std::span(words)), patient);
          check(response.size() == sizeof words &&
                    std::memcmp(response.data(), words.data(), sizeof words) == 0,
                "a response is another thread's");
        }
      });
  }
  is_over = true;
}

} // namespace

int main() {
  try {
    ring_bells();
    share_a_caller();
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

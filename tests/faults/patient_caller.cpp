// SPDX-License-Identifier: MIT
// For test_hostile_peer.py: asks a server that does random things, the first of a sender's, until
// standard input ends, and counts what becomes of each request. There must be an outcome, or none
// in time: nothing else.
#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/caller.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

struct Tally {
  std::array<std::atomic<uint64_t>, 10> outcomes{};
  std::atomic<uint64_t> posted{};
  uint64_t of(Outcome outcome) const { return outcomes.at(static_cast<size_t>(outcome)); }
};

// Reads all that came.
void read(std::span<const std::byte> response) {
  std::byte all{};
  for (const std::byte byte : response)
    all ^= byte;
  static_cast<void>(std::atomic_ref(all).load());
}

void ask(Caller &caller, std::minstd_rand &random, Tally &tally) {
  const std::vector<std::byte> bytes(random() % (random() % 16 == 0 ? 30'000 : 300));
  RequestOptions how{.max_response = random() % 600, .server = 0, .limit = std::chrono::seconds(1)};
  if (caller.largest_response() > 0 && random() % 2 == 0)
    how.max_response = RequestOptions::any_length;
  try {
    if (random() % 8 == 0) {
      caller.post(bytes, how);
      ++tally.posted;
      return;
    }
    caller.request(bytes, read, how);
    ++tally.outcomes.at(static_cast<size_t>(Outcome::response));
  } catch (const RequestFailed &failure) {
    ++tally.outcomes.at(static_cast<size_t>(failure.outcome()));
    if (failure.outcome() == Outcome::sender_gone)
      throw;
    if (failure.outcome() == Outcome::not_sent)
      caller.wait_connected(std::chrono::seconds(1), 0);
  }
}

void patient_caller(int argc, char **argv) {
  CommandLine line{"Asks a server that does random things."};
  std::string name;
  uint32_t seed = 1, threads = 4;
  bool is_until_answered = false;
  line.add("--attach", name, "the sender", 100);
  line.add("--seed", seed, "of the requests [1]");
  line.add("--threads", threads, "that ask [4]", 1, 64);
  line.add("--until-answered", is_until_answered, "ask until the first response");
  line.parse(argc, argv);
  Caller caller = Caller::join(name);
  Tally tally;
  std::atomic<bool> is_over = false;
  std::vector<std::exception_ptr> errors(threads);
  {
    std::vector<std::jthread> all;
    for (uint32_t i = 0; i < threads; ++i)
      all.emplace_back([&, i] {
        try {
          std::minstd_rand random(seed + i);
          while (is_until_answered ? tally.of(Outcome::response) == 0 : !is_over.load())
            ask(caller, random, tally);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    while (!is_until_answered && std::getchar() != EOF) {
    }
    is_over = true;
  }
  for (const std::exception_ptr &error : errors)
    if (error)
      std::rethrow_exception(error);
  const auto of = [&](Outcome outcome) {
    return static_cast<unsigned long long>(tally.of(outcome));
  };
  std::printf("%llu answered, %llu refused, %llu lost, %llu not sent, %llu late, "
              "%llu posted\n",
              of(Outcome::response), of(Outcome::refused), of(Outcome::lost), of(Outcome::not_sent),
              of(Outcome::timed_out) + of(Outcome::expired) + of(Outcome::no_room),
              static_cast<unsigned long long>(tally.posted));
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, patient_caller);
}

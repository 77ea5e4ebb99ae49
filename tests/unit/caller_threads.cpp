// SPDX-License-Identifier: MIT
// Callers in threads, and one that answers, under the thread sanitizer: the words in which they
// agree whose the slots are.
#include "loop_back.hpp"

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

using namespace rdmashared;

namespace {

constexpr uint32_t callers = 4, requests = 3000;

void ask(Caller &caller, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<Pending> held;
  for (uint32_t i = 0; i < requests; ++i) {
    const std::vector<std::byte> bytes(random() % 100, static_cast<std::byte>(random()));
    const auto check = [&](std::span<const std::byte> response) {
      if (!std::equal(response.begin(), response.end(), bytes.begin(), bytes.end()))
        throw rdmacommon::Error("a response", "it is another's");
    };
    switch (random() % 4) {
    case 0:
      caller.request(bytes, check);
      break;
    case 1:
      caller.post(bytes);
      break;
    case 2:
      caller.request_async(bytes); // and lets it go
      break;
    default: // a thread that holds responses does not wait for room
      for (int n = 0; n < 5; ++n)
        if (auto pending = caller.try_request_async(bytes))
          held.push_back(std::move(*pending));
      for (Pending &pending : held)
        if (pending.wait(std::chrono::seconds(10)) != bytes)
          throw rdmacommon::Error("a response", "it is another's, or there is none");
      held.clear();
    }
  }
}

} // namespace

int main() {
  LoopBack loop;
  Caller caller = loop.caller(), spinning = loop.caller(Waiting::spin);
  std::atomic<uint32_t> at_work{callers};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < callers; ++i)
    threads.emplace_back([&, i] {
      ask(i % 2 == 0 ? caller : spinning, i + 1);
      --at_work;
    });
  while (at_work > 0) {
    for (const LoopBack::Taken &taken : loop.take())
      loop.answer(taken);
    loop.answers.wake();
  }
  for (std::thread &thread : threads)
    thread.join();
  std::printf("%u requests\n", callers * requests);
}

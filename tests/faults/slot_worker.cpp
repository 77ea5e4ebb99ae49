// SPDX-License-Identifier: MIT
// For test_shared_client.py: a worker that attaches to a sender, goes as far as it is told, says
// so, and stays there. Or one that does what no worker should.
#include "members.hpp"
#include "service.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/caller.hpp>

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;
using Clock = std::chrono::steady_clock;

namespace {

std::vector<std::byte> request_that_takes(uint32_t microseconds, uint32_t response = 8) {
  std::vector<std::byte> bytes(sizeof(ServiceHeader));
  const ServiceHeader header{.response_length = htonl(response),
                             .microseconds = htonl(microseconds)};
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

// Options with a long limit: what happens to the server ends a request, not this limit.
const RequestOptions patient{.limit = std::chrono::hours(1)};

void stay() {
  std::printf("here\n");
  std::fflush(stdout);
  char byte;
  if (read(STDIN_FILENO, &byte, 1) < 0) // until the test says so, or kills us
    throw_errno(errno, "read");
}

// Holds answers that it does not collect, until the test says that the others are through.
void hoard(Caller &caller) {
  std::vector<Pending> held;
  while (auto one = caller.try_request_async(request_that_takes(0), patient))
    held.push_back(std::move(*one));
  for (const Pending &pending : held)
    while (!pending.is_ready())
      ;
  stay();
  size_t right = 0;
  for (Pending &pending : held)
    right += pending.wait(std::chrono::seconds(1)).has_value();
  std::printf("%s of %zu are still there\n", right == held.size() ? "all" : "not all", held.size());
}

// Prints the error of the requests, which is the same for all.
void wait_for_errors(std::vector<Pending> &held) {
  std::printf("here\n");
  std::fflush(stdout);
  std::string why;
  uint32_t failed = 0;
  for (Pending &pending : held)
    try {
      pending.wait(std::chrono::seconds(60));
    } catch (const Error &error) {
      ++failed;
      why = error.what();
    }
  std::printf("%u failed: %s\n", failed, why.c_str());
}

// A program that becomes a daemon closes its descriptors, with them the link to the sender and the
// doorbell.
void close_descriptors(std::vector<Pending> held) {
  closefrom(STDERR_FILENO + 1);
  for (Pending &pending : held)
    try {
      pending.wait(std::chrono::seconds(60));
    } catch (const Error &error) {
      std::printf("%s\n", error.what());
    }
}

// Writes random words to all that it can write, and random submissions, most of which look right.
// The sender may close its link; then it joins again.
void be_hostile(const std::string &name, std::chrono::seconds seconds, uint32_t seed) {
  std::minstd_rand random(seed);
  const auto any = [&]() -> uint32_t {
    return random() % 4 == 0 ? static_cast<uint32_t>(random() * random()) : random() % 64;
  };
  uint64_t times_joined = 0, submissions = 0;
  std::printf("here\n");
  std::fflush(stdout);
  for (const auto end = Clock::now() + seconds; Clock::now() < end; ++times_joined) {
    Joined joined =
        join(connect_to(name, std::chrono::seconds(60), Where::here()), std::chrono::seconds(60));
    const Area &area = *joined.area;
    const auto bytes = area.slots(0);
    uint32_t submitted = 0;
    for (int turns = 0; turns < 20'000 && !joined.link.can_receive() && Clock::now() < end;
         ++turns) {
      switch (random() % 16) {
      case 0: // anywhere: lengths, states, bells, other requests; but no time that a handler takes
        if (const size_t at = random() % bytes.size(); at % area.shape().slot_size / 4 != 1)
          bytes[at] = static_cast<std::byte>(random());
        area.answer(random() % area.shape().slots).outcome = any();
        area.sleeps() = any();
        area.wants_event() = any();
        area.wants_room() = any();
        area.room_bell() = any();
        break;
      case 1: // now and then it leaves
        if (random() % 256 == 0)
          area.submitted() = submitted = any();
        break;
      case 2: {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t rung = write(joined.doorbell.get(), &one, sizeof one);
        break;
      }
      default: {
        // A response of at most 4 bytes, or of far too many: one slot's response is its next
        // request, which must not ask the service for work that takes time.
        const uint32_t slot = any();
        area.submission(slot % area.shape().slots) = {
            .length = any(),
            .max_response = random() % 4 == 0 ? 1 << 30 : static_cast<uint32_t>(random() % 5),
            .server = random() % 4 == 0 ? any() : any_server,
            .limit_ms = random() % 4 == 0 ? any() : 0,
            .response_buffer = any(),
            .want = static_cast<Want>(random() % 5),
            .service = 0,
            .unused = 0};
        area.queued(submitted++) = random() % 5 == 0 ? slot | cancels : slot;
        area.submitted() = submitted;
        ++submissions;
        if (submissions % 16 == 0)
          sched_yield();
      }
      }
    }
  }
  std::printf("%llu submissions, joined %llu times\n", static_cast<unsigned long long>(submissions),
              static_cast<unsigned long long>(times_joined));
}

// A worker without a Caller, so it can submit what no Caller does.
class ByHand {
public:
  explicit ByHand(const std::string &name)
      : joined_(join(connect_to(name, std::chrono::seconds(60), Where::here()),
                     std::chrono::seconds(60))) {}
  const Area &area() const { return *joined_.area; }
  void submit(uint32_t slot, Want want, uint32_t max_response, uint32_t microseconds = 0) {
    const auto bytes = request_that_takes(microseconds);
    std::ranges::copy(bytes, area().slots(slot).begin());
    area().submission(slot) = {.length = static_cast<uint32_t>(bytes.size()),
                               .max_response = max_response,
                               .server = any_server,
                               .limit_ms = 0,
                               .response_buffer = slot,
                               .want = want,
                               .service = 0,
                               .unused = 0};
    queue(slot);
  }
  void cancel(uint32_t slot) { queue(slot | cancels); }
  void wait_for_answer(uint32_t slot) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t rung = write(joined_.doorbell.get(), &one, sizeof one);
    while (area().answer(slot).outcome == 0)
      sched_yield();
  }

private:
  void queue(uint32_t entry) {
    area().queued(submitted_++) = entry;
    area().submitted() = submitted_;
  }

  const Joined joined_;
  uint32_t submitted_ = 0;
};

// Submits requests whose slots overlap, and then one whose slots do not.
void submit_overlapping(const std::string &name) {
  ByHand worker(name);
  const AreaShape &shape = worker.area().shape();
  for (uint32_t slot = 0; slot < shape.slots; ++slot)
    worker.area().answer(slot).outcome = 0;
  for (uint32_t slot = 0; slot < shape.slots; ++slot)
    worker.submit(slot, Want::response, (shape.slots - slot) * shape.slot_size);
  worker.wait_for_answer(0);
  worker.area().answer(0).outcome = 0;
  worker.submit(0, Want::response, shape.slot_size);
  worker.wait_for_answer(0);
  uint32_t answered = 0;
  for (uint32_t slot = 0; slot < shape.slots; ++slot)
    answered += worker.area().answer(slot).outcome != 0;
  std::printf("%u of %u are answered\n", answered, shape.slots);
}

// Cancels two requests, of which each waits for a response of another kind, again and again.
void cancel_again(const std::string &name) {
  ByHand worker(name);
  const auto wait_for_the_sender = [&] {
    worker.area().answer(2).outcome = 0;
    worker.submit(2, Want::long_response, 8); // the first one of these waits for its memory
    worker.wait_for_answer(2);
  };
  worker.submit(0, Want::response, 8, 2'000'000);
  worker.submit(1, Want::long_response, 8, 2'000'000);
  wait_for_the_sender();              // it has sent them
  for (uint32_t i = 0; i < 1000; ++i) // no more than the queue has room for
    for (const uint32_t slot : {0, 1})
      worker.cancel(slot);
  wait_for_the_sender();
}

void slot_worker(int argc, char **argv) {
  CommandLine line{"A worker that stays where it is told."};
  std::string name, stage = "idle";
  uint32_t count = 8, microseconds = 1'000'000, seed = 1;
  std::chrono::seconds seconds{10};
  line.add("--attach", name, "the sender", 100);
  line.add("--stage", stage, "where to stay",
           {"idle", "sent", "waiting", "answered", "collecting", "hoarding", "failing", "too-long",
            "too-slow", "no-room", "closing", "overlapping", "cancelling", "hostile"});
  line.add("--count", count, "requests that it holds", 1, 1000);
  line.add("--microseconds", microseconds, "that the server takes for each that is sent", 0,
           60'000'000);
  line.add("--seconds", seconds, "how long it is hostile");
  line.add("--seed", seed, "of what it writes then [1]");
  line.parse(argc, argv);
  if (stage == "hostile")
    return be_hostile(name, seconds, seed);
  if (stage == "overlapping")
    return submit_overlapping(name);
  if (stage == "cancelling")
    return cancel_again(name);
  Caller caller = Caller::join(name);
  if (stage == "hoarding")
    return hoard(caller);
  if (stage == "collecting")
    return caller.request(request_that_takes(0), [](std::span<const std::byte>) { stay(); });
  if (stage == "failing")
    caller.request(request_that_takes(0, please_fail));
  if (stage == "too-slow")
    caller.request(request_that_takes(60'000'001));
  if (stage == "too-long")
    caller.request(std::vector<std::byte>(1 << 20));
  if (stage == "no-room")
    caller.request(request_that_takes(0, 5000));
  std::vector<Pending> held;
  for (uint32_t i = 0; i < count && stage != "idle"; ++i) {
    held.push_back(
        caller.request_async(request_that_takes(stage == "answered" ? 0 : microseconds), patient));
    while (stage == "answered" && !held.back().is_ready())
      ;
  }
  if (stage == "closing")
    return close_descriptors(std::move(held));
  if (stage == "waiting")
    return wait_for_errors(held);
  stay();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, slot_worker);
}

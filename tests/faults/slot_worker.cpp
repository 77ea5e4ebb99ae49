// SPDX-License-Identifier: MIT
// For test_shared_client.py: a worker that attaches to a sender, goes as far as it is told, says
// so, and stays there.
#include "answer_table.hpp"
#include "service.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/ring_host.hpp>
#include <rdmashared/caller.hpp>

#include <arpa/inet.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

std::vector<std::byte> request_that_takes(uint32_t microseconds, uint32_t response = 8) {
  std::vector<std::byte> bytes(sizeof(ServiceHeader));
  const ServiceHeader header{.response_length = htonl(response),
                             .microseconds = htonl(microseconds)};
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

void stay() {
  std::printf("here\n");
  std::fflush(stdout);
  char byte;
  if (read(STDIN_FILENO, &byte, 1) < 0) // until the test says so, or kills us
    throw_errno(errno, "read");
}

// Holds answers that it does not collect, until the test says that the others are through.
void hoard(Caller &caller, uint32_t count) {
  std::vector<Pending> held;
  for (uint32_t i = 0; i < count; ++i)
    held.push_back(caller.request_async(request_that_takes(0)));
  for (const Pending &pending : held)
    while (!pending.is_ready())
      ;
  const bool has_quota = !caller.try_request_async(request_that_takes(0));
  stay();
  uint32_t right = 0;
  for (Pending &pending : held)
    right += pending.wait(std::chrono::seconds(1)).has_value();
  std::printf("%u of %u are still there, and there was %s for more\n", right, count,
              has_quota ? "no room" : "room");
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

// The ring as a Caller uses it, by hand: one request of three slots.
struct ByHand {
  explicit ByHand(const std::string &name) : worker(connect_to_ring(name)), answers(ring) {
    const auto body = request_that_takes(0);
    const auto header = header_of({.kind = Kind::request,
                                   .slot = run.first,
                                   .slots = run.count,
                                   .length = static_cast<uint32_t>(body.size()),
                                   .id = run.position});
    std::memcpy(claim.data().data(), &header, sizeof header);
    std::memcpy(claim.data().data() + sizeof header, body.data(), body.size());
    answers.expect(run.position, AnswerState::waiting);
  }
  void publish() {
    if (!claim.publish())
      throw Error("the claim", "it is gone");
  }
  // Dies, as it looks to the others, in the middle of SlotRing::give_back(): one slot is free, but
  // not the first.
  void give_half_back() {
    publish();
    answers.wait(run.position, std::chrono::seconds(5), Waiting::events, {});
    const auto lap = static_cast<uint32_t>(run.position / ring.shape().slots);
    controls()[run.first + 1].word =
        SlotWord{.state = SlotState::free, .count = 0, .worker = 0, .lap = lap + 1}.packed();
  }
  void publish_damaged() {
    controls()[run.first].length = 0xffffffff;
    publish();
  }
  // Of all slots. Before the data are a counter for each worker's slots, and before these the
  // slots' words, on pages of their own.
  SlotControl *controls() {
    const size_t size = sizeof(RingHeader) + ring.shape().slots * sizeof(SlotControl);
    const size_t counters = (size_t{SlotRing::own_worker} + 1) * sizeof(SlotsHeld);
    auto *base = ring.data().data() - counters - (size + 4095) / 4096 * 4096;
    return reinterpret_cast<SlotControl *>(base + sizeof(RingHeader));
  }

  RingWorker worker;
  SlotRing &ring = worker.ring();
  AnswerTable answers;
  SlotRing::Claim claim = worker.claim(3 * ring.shape().slot_size, std::chrono::seconds(5));
  SlotRun run{.position = claim.position(),
              .first = static_cast<uint32_t>(claim.position() % ring.shape().slots),
              .count = 3};
};

// A program that becomes a daemon closes its descriptors, with them the link to the sender and the
// doorbell.
void close_descriptors(Caller &caller) {
  closefrom(STDERR_FILENO + 1);
  for (int i = 0; i < 2; ++i)
    try {
      caller.request(request_that_takes(1'000'000),
                     {.server = {}, .limit = std::chrono::seconds(60)});
    } catch (const Error &error) {
      std::printf("%s\n", error.what());
    }
}

// The same with requests under way. It waits for one of them, and lets the other go.
void close_descriptors_late(Caller &caller) {
  std::vector<Pending> held;
  for (int i = 0; i < 2; ++i)
    held.push_back(caller.request_async(request_that_takes(1'000'000)));
  closefrom(STDERR_FILENO + 1);
  try {
    held.front().wait(std::chrono::seconds(60));
  } catch (const Error &error) {
    std::printf("%s\n", error.what());
  }
}

void slot_worker(int argc, char **argv) {
  CommandLine line{"A worker that stays where it is told."};
  std::string name, stage = "idle";
  uint32_t count = 8, microseconds = 1'000'000;
  line.add("--attach", name, "the sender", 100);
  line.add("--stage", stage, "where to stay",
           {"idle", "claimed", "sent", "waiting", "answered", "collecting", "hoarding", "failing",
            "too-long", "too-slow", "no-room", "giving-back", "damaging", "closing",
            "closing-late"});
  line.add("--count", count, "requests that it holds", 1, 1000);
  line.add("--microseconds", microseconds, "that the server takes for each that is sent", 0,
           60'000'000);
  line.parse(argc, argv);
  if (stage == "claimed") { // as a Caller does it, up to there
    RingWorker worker(connect_to_ring(name));
    const SlotRing::Claim claim = worker.claim(24, std::chrono::seconds(5));
    return stay();
  }
  if (stage == "giving-back" || stage == "damaging") {
    ByHand by_hand(name);
    stage == "damaging" ? by_hand.publish_damaged() : by_hand.give_half_back();
    return stay();
  }
  std::vector<Link> links;
  links.push_back(connect_to_ring(name));
  Caller caller(std::move(links));
  if (stage == "closing")
    return close_descriptors(caller);
  if (stage == "closing-late")
    return close_descriptors_late(caller);
  if (stage == "hoarding")
    return hoard(caller, count);
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
    held.push_back(caller.request_async(
        request_that_takes(stage == "sent" || stage == "waiting" ? microseconds : 0)));
    while (stage == "answered" && !held.back().is_ready())
      ;
  }
  if (stage == "waiting")
    return wait_for_errors(held);
  stay();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, slot_worker);
}

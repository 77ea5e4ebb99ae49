// SPDX-License-Identifier: MIT
// A request's way through its caller, the area and the two rings, for an exact count of
// instructions (test_counts.py): no network, no second thread and no system call, so each run takes
// the same number.
#include "members.hpp"
#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmashared/caller.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <vector>

using namespace rdmashared;

namespace {

constexpr uint32_t max_in_flight = 64;
constexpr Shape shape{
    .slots = 256, .slot_size = 64, .window = 64, .long_responses = 0, .largest = 0};
constexpr AreaShape area_shape{
    .slots = max_in_flight, .slot_size = 64, .long_responses = 0, .largest = 0, .longest = 64};

// One side's ring for the other side.
struct Way {
  OutRing out{shape, 64};
  InRing in{shape};

  template <typename Function> void deliver(Function f) {
    for (OutRing::Piece piece{}; out.next(piece);) {
      const size_t at = size_t{piece.run.first} * shape.slot_size;
      std::memcpy(in.memory().data() + at, out.memory().data() + at, piece.bytes);
      in.take(piece.run, piece.bytes, f);
    }
    out.taken(in.next_credit());
  }
};

// The sender and the server: each response is the request.
struct Others {
  Way requests, answers;
  uint32_t taken = 0;

  void answer_all(const Area &area) {
    for (; taken != area.submitted().load(std::memory_order_acquire); ++taken) {
      const uint32_t slot = area.queued(taken).load(std::memory_order_relaxed);
      const Submission what = area.submission(slot);
      requests.out.put({.length = what.length,
                        .max_response = what.max_response,
                        .id = slot,
                        .kind = Kind::request},
                       area.slots(slot).first(what.length));
    }
    requests.deliver([&](const Header &header, std::span<const std::byte> bytes) {
      answers.out.put({.length = header.length, .id = header.id, .kind = Kind::response}, bytes);
    });
    answers.deliver([&](const Header &header, std::span<const std::byte> bytes) {
      const auto slot = static_cast<uint32_t>(header.id);
      std::memcpy(area.slots(slot).data(), bytes.data(), bytes.size());
      area.answer(slot).length = header.length;
      area.answer(slot).outcome.store(1 + static_cast<uint32_t>(Outcome::response),
                                      std::memory_order_release);
    });
  }
};

void request_path(int argc, char **argv) {
  rdmacommon::CommandLine line{"Requests without a network, for callgrind."};
  uint32_t requests = 1000, in_flight = 1;
  line.add("--requests", requests, "how many [1000]", 1, 1'000'000);
  line.add("--in-flight", in_flight, "that wait for a response [1]", 1, max_in_flight);
  line.parse(argc, argv);
  const OwnBoard board(1);
  std::promise<Member> joined;
  Members members(area_shape,
                  {{.board = board.fd(),
                    .joined = [&](Member member) { joined.set_value(std::move(member)); },
                    .left = [](uint32_t) {}}},
                  {}, {});
  auto [mine, theirs] = rdmacommon::make_link();
  members.invite(std::move(mine));
  Caller caller(std::move(theirs));
  const Member member = joined.get_future().get();
  Others others;
  const std::array<std::byte, 32> bytes{};
  const std::vector<std::span<const std::byte>> together(in_flight, bytes);
  std::vector<Pending> pending;
  pending.reserve(in_flight);
  for (uint32_t sent = 0; sent < requests; sent += in_flight) {
    if (in_flight == 1)
      pending.push_back(caller.request_async(bytes));
    else
      pending = caller.request_batch(together);
    others.answer_all(*member.area);
    for (Pending &one : pending)
      if (!one.wait(std::chrono::milliseconds(0), [](std::span<const std::byte>) {}))
        throw rdmacommon::Error("a response", "it is not there");
    pending.clear();
  }
#if defined(__clang__)
  std::printf("clang %d\n", __clang_major__);
#else
  std::printf("gcc %d\n", __GNUC__);
#endif
}

} // namespace

int main(int argc, char **argv) {
  return rdmacommon::run_main(argc, argv, request_path);
}

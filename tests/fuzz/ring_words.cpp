// SPDX-License-Identifier: MIT
// Fuzzes a ring in which a worker writes whatever it likes: into the slots' words and lengths, the
// head, and the other words of the header. The owner and an honest worker go on meanwhile. Each
// call ends, and returns or throws Error.
#include "fuzz.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/slot_ring.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

using namespace rdmacommon;

namespace {

constexpr RingShape shape{.slots = 16, .slot_size = 64, .quota = 12};

struct Ring {
  File memory = SlotRing::make(shape);
  File doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  // As the liar has it.
  SharedMemory raw{memory.get(), static_cast<size_t>(lseek(memory.get(), 0, SEEK_END))};
  RingHeader &header = *static_cast<RingHeader *>(raw.data());
  SlotControl *controls = reinterpret_cast<SlotControl *>(static_cast<std::byte *>(raw.data()) +
                                                          header.layout.controls);
  SlotRing owner{memory.get(), doorbell.get()}, worker{memory.get(), doorbell.get()};
  std::vector<SlotRun> taken;
  std::deque<SlotRing::Claim> claims;
};

void lie(Ring &ring, Input &input) {
  const auto what = input.get<uint8_t>();
  SlotControl &control = ring.controls[what % shape.slots];
  switch (what / shape.slots) {
  case 0:
    control.word = input.get<uint64_t>();
    break;
  case 1:
    control.length = input.get<uint32_t>();
    break;
  case 2:
    control.lap = input.get<uint32_t>();
    break;
  case 3: // most words are far from any that means something: one that does
    control.word = SlotWord{.state = static_cast<SlotState>(input.get<uint8_t>() % 8),
                            .count = input.get<uint8_t>(),
                            .worker = input.get<uint16_t>(),
                            .lap = input.get<uint8_t>() % 4U}
                       .packed();
    break;
  case 4:
    ring.header.head = input.get<uint64_t>();
    break;
  case 5:
    ring.header.head = input.get<uint8_t>() % 64;
    break;
  case 6:
    ring.header.taken = input.get<uint8_t>() % 64;
    break;
  case 7:
    ring.header.awaited = input.get<uint8_t>() % 64;
    break;
  default:
    ring.header.room = input.get<uint32_t>();
  }
}

void take(Ring &ring, uint32_t limit) {
  const SlotRun run = ring.owner.take(limit);
  require(run.count == 0 || (run.first < shape.slots && run.first + run.count <= shape.slots &&
                             run.first == run.position % shape.slots),
          "a run is within the ring");
  if (run.count == 0)
    return;
  ring.taken.push_back(run);
  for (uint32_t at = 0; at < run.count;) {
    const SlotMessage message = ring.owner.message(run, at);
    require(message.slot + message.slots <= shape.slots &&
                message.data.size() <= size_t{message.slots} * shape.slot_size &&
                message.data.data() >= ring.owner.data().data() &&
                message.data.data() + message.data.size() <=
                    ring.owner.data().data() + ring.owner.data().size(),
            "a message is within its slots");
    std::fill(message.data.begin(), message.data.end(), std::byte{0});
  }
}

void claim(Ring &ring, uint32_t length) {
  if (ring.claims.size() == 4)
    ring.claims.pop_front(); // gives it up
  if (auto claim = ring.worker.try_claim(1, length)) {
    require(claim->data().size() == length, "a claim is as long as it should be");
    std::fill(claim->data().begin(), claim->data().end(), std::byte{1});
    ring.claims.push_back(std::move(*claim));
  }
}

void step(Ring &ring, Input &input) {
  const auto what = input.get<uint8_t>();
  switch (what % 10) {
  case 0:
  case 1:
    return lie(ring, input);
  case 2:
    return take(ring, 1 + what / 10 % 16);
  case 3:
    return claim(ring, what * 4U);
  case 4:
    if (!ring.claims.empty()) {
      SlotRing::Claim claim = std::move(ring.claims.back());
      ring.claims.pop_back();
      static_cast<void>(claim.publish());
    }
    return;
  case 5:
    if (!ring.taken.empty()) {
      const SlotRun run = ring.taken.back();
      ring.taken.pop_back();
      ring.worker.give_back(run);
    }
    return;
  case 6:
    ring.owner.reclaim(what / 10 % 3);
    return;
  case 7:
    ring.owner.arm();
    ring.owner.disarm();
    return;
  case 8:
    ring.owner.holds(what / 10);
    return;
  default:
    try { // a wait that may not last
      ring.owner.claim(SlotRing::own_worker, what * 4U, std::chrono::milliseconds(0));
    } catch (const Error &) {
    }
  }
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  if (size > 4096)
    return 0;
  Input input(bytes, size);
  Ring ring;
  while (!input.is_empty())
    try {
      step(ring, input);
    } catch (const Error &) { // "the ring is damaged" ends a host. Here it goes on.
    }
  return 0;
}

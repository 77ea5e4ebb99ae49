// SPDX-License-Identifier: MIT
// Fuzzes the link between the owner of a ring and a worker, each side against a peer that says
// anything, with any files. The input is a byte that chooses the side, and then messages: a length,
// how many files, which files, and the text.
#include "fuzz.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/ring_host.hpp>

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

constexpr RingShape shape{.slots = 4, .slot_size = 64};

// Files that a peer may send, right ones among them. They live as long as the fuzzer.
struct Files {
  File memory = SlotRing::make(shape), larger = SlotRing::make({.slots = 8, .slot_size = 64}),
       doorbell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
       process{static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))},
       other = make_shared_memory("other", 4096), epoll{dup(STDERR_FILENO)};

  int operator[](uint8_t which) const {
    const int all[] = {memory.get(),  larger.get(), doorbell.get(),
                       process.get(), other.get(),  epoll.get()};
    return all[which % std::size(all)];
  }
};

// Texts that a peer may send, nearly right: the input's own words are rarely so.
const char *const texts[] = {
    "slot ring 1",
    "slot ring 1 goodbye",
    "slot ring 1 worker 1 rings 1 doorbells 1",
    "slot ring 1 worker 1 rings 2 doorbells 1",
    "slot ring 1 worker 4294967297 rings 1 doorbells 1",
    "slot ring 1 worker 1 rings 15 doorbells 1",
    "slot ring 1 worker 65535 rings 1 doorbells 1",
    "slot ring 1 worker ",
};

void say(const Link &link, Input &input) {
  static const Files files;
  const auto length = input.get<uint8_t>();
  std::vector<int> sent;
  for (auto count = input.get<uint8_t>() % 20; count > 0; --count)
    sent.push_back(files[input.get<uint8_t>()]);
  std::string text;
  if (length >= 128)
    text = texts[length % std::size(texts)];
  else
    for (const uint8_t letter : input.take(length))
      text += static_cast<char>(letter);
  if (!text.empty())
    link.tell(text, sent);
}

void against_the_host(Input &input) {
  RingHost host(shape, 1, 4);
  auto [mine, theirs] = make_link();
  host.invite(std::move(mine));
  while (!input.is_empty()) {
    try {
      say(theirs, input);
    } catch (const Error &) { // the host has closed it
      break;
    }
    host.arm();
    host.handle_events();
  }
  theirs = Link();
  host.arm();
  host.handle_events();
  require(host.workers() <= 1 && host.silent() <= 1, "one guest is one worker at most");
}

void against_a_worker(Input &input) {
  auto [mine, theirs] = make_link();
  say(theirs, input);
  RingWorker worker(std::move(mine), milliseconds(0));
  require(worker.number() > 0 && worker.number() <= SlotRing::max_workers && worker.rings() > 0 &&
              worker.rings() <= RingHost::max_rings,
          "a worker has a number and a ring");
  for (uint32_t i = 0; i < worker.rings(); ++i)
    if (auto claim = worker.ring(i).try_claim(worker.number(), 16))
      static_cast<void>(claim->publish());
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Input input(bytes, size);
  try {
    if (input.get<uint8_t>() % 2 == 0)
      against_the_host(input);
    else
      against_a_worker(input);
  } catch (const Error &) {
  }
  return 0;
}

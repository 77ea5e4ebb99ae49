// SPDX-License-Identifier: MIT
// Fuzzes a worker that joins a sender which says anything, with any files. The input is a length,
// how many files, which files, and the text.
#include "fuzz.hpp"

#include "members.hpp"

#include <rdmacommon/check.hpp>

#include <string>
#include <vector>

using namespace rdmashared;
using rdmacommon::Error, rdmacommon::File, rdmacommon::Link;

namespace {

// Files that a peer may send, right ones among them. They live as long as the fuzzer.
struct Files {
  OwnBoard board{1};
  File area = Area::make(
           {.slots = 4, .slot_size = 64, .long_responses = 1, .largest = 100, .longest = 64}),
       other = rdmacommon::make_shared_memory("other", 4096),
       small = rdmacommon::make_shared_memory("small", 8), null{dup(STDERR_FILENO)};
  Event event;

  int operator[](uint8_t which) const {
    const int all[] = {event.fd(), board.fd(), area.get(), other.get(), small.get(), null.get()};
    return all[which % std::size(all)];
  }
};

// Texts that a peer may send, nearly right: the input's own words are rarely so.
const char *const texts[] = {
    "rdmashared 1 worker 0",    "rdmashared 1 worker 1023",
    "rdmashared 1 worker 1024", "rdmashared 1 worker 4294967296",
    "rdmashared 1 worker ",     "rdmashared 2 worker 0",
    "rdmashared 1 worker 1x",   "rdmashared 1",
};

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static const Files files;
  Input input(bytes, size);
  const auto length = input.get<uint8_t>();
  std::vector<int> sent;
  if (const auto count = input.get<uint8_t>(); count >= 128) // those that a sender sends
    sent = {files[0], files[1], files[2], files[0], files[0]};
  else
    for (int i = 0; i < count % 8; ++i)
      sent.push_back(files[input.get<uint8_t>()]);
  std::string text;
  if (length >= 64)
    text = texts[length % std::size(texts)];
  else
    for (const uint8_t letter : input.take(length))
      text += static_cast<char>(letter);
  auto [mine, theirs] = rdmacommon::make_link();
  if (text.empty())
    mine = Link();
  else
    mine.send(text, sent);
  try {
    const Joined joined = join(std::move(theirs), std::chrono::milliseconds(0));
    require(joined.number < max_workers, "a worker has a number");
    require(joined.area->slots(0).size() ==
                size_t{joined.area->shape().slots} * joined.area->shape().slot_size,
            "an area has its slots");
    require((*joined.board)->servers >= 1, "there is a server");
    joined.sender_has_gone();
  } catch (const Error &) { // the right outcome for nonsense
  }
  return 0;
}

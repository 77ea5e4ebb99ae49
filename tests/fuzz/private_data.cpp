// SPDX-License-Identifier: MIT
// Fuzzes the private data of both rdma_cm protocols, lesson 12's with the description that follows
// it, and rdmashared's. The input is a byte that chooses which, and then the bytes.
#include "fuzz.hpp"

#include "wire.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/description.hpp>

#include <algorithm>
#include <vector>

namespace {

void greeting(std::span<const uint8_t> bytes) {
  rdma_conn_param came{};
  came.private_data = bytes.data();
  came.private_data_len = static_cast<uint8_t>(std::min<size_t>(bytes.size(), 255));
  if (const auto told = rdmacommon::greeting_in(came))
    require(rdmacommon::words_for(rdmacommon::Refusal{told->refusal}) != nullptr,
            "each refusal has words");
}

void description(std::span<const uint8_t> bytes, size_t received) {
  rdmacommon::Description message{};
  if (!bytes.empty())
    std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
  try {
    const auto memory = rdmacommon::parse_description(message, received);
    require(memory.length > 0 && memory.address + (memory.length - 1) >= memory.address,
            "memory does not wrap");
  } catch (const rdmacommon::Error &) {
  }
}

void hello(std::span<const std::byte> bytes) {
  using namespace rdmashared;
  Rejection why{};
  const auto hello = hello_in(bytes, why);
  require(hello.has_value() == (why == Rejection::none), "a hello is rejected, or it is right");
  require(words_for(why) != nullptr, "each rejection has words");
  if (!hello)
    return;
  // Apart from the versions, of which one has been chosen, and the zeros behind them.
  const HelloBytes again = to_bytes(*hello);
  constexpr size_t begin = 6, end = 48;
  require(std::memcmp(again.bytes + begin, bytes.data() + begin, end - begin) == 0,
          "a hello can be written back");
  require(hello->version >= oldest_version && hello->version <= newest_version,
          "both speak the version");
  if (hello->purpose == Purpose::data)
    return;
  require(is_possible(hello->shape), "a server can have such slots");
  // No size that a server allocates or multiplies wraps.
  const Shape &shape = hello->shape;
  require(uint64_t{shape.slots} * shape.slot_size <= uint64_t{1} << 31 &&
              uint64_t{shape.long_responses} * shape.largest <= uint64_t{1} << 42,
          "what is computed with it stays far from 2^64");
}

void welcome(std::span<const std::byte> bytes) {
  using namespace rdmashared;
  const auto welcome = welcome_in(bytes);
  if (!welcome)
    return;
  require(words_for(welcome->rejection) != nullptr, "each rejection has words");
  if (welcome->rejection == Rejection::version)
    return;
  const WelcomeBytes again = to_bytes(*welcome);
  require(std::memcmp(again.bytes, bytes.data(), sizeof again) == 0,
          "a welcome can be written back");
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Input input(bytes, size);
  const auto which = input.get<uint8_t>();
  // Exactly as much memory as there are bytes, so that the sanitizer sees a read behind them.
  const auto rest = input.rest();
  const std::vector<uint8_t> copy(rest.begin(), rest.end());
  switch (which % 4) {
  case 0:
    greeting(copy);
    break;
  case 1:
    description(copy, which < 128 ? sizeof(rdmacommon::Description) : copy.size());
    break;
  case 2:
    hello(std::as_bytes(std::span(copy)));
    break;
  default:
    welcome(std::as_bytes(std::span(copy)));
  }
  return 0;
}

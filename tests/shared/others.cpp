// SPDX-License-Identifier: MIT
// What one process, one request or one server must not do to the others.
#include "gate.hpp"
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace in_one_process {
namespace {

using std::chrono::milliseconds;

// A ring of 64 slots of 64 bytes. The server has no memory for requests, so it takes one run at a
// time: the others wait until all that it has taken is answered.
constexpr uint32_t slots = 64;
constexpr uint64_t only_for_the_rings = 3 * slots * 64;

TEST(Others, AClientWhoseMessagesWaitForMemoryKeepsItsConnection) {
  constexpr std::chrono::seconds silence(4);
  Kept kept;
  Running server({.memory = only_for_the_rings}, keep_in(kept));
  Connected connected({.servers = {server.where()}, .slots = slots, .silence = silence});
  Pending first = connected.caller.request_async(bytes("1"), patient());
  Request request = kept.pop();
  Pending second = connected.caller.request_async(bytes("2"), patient()); // and pings wait behind
  EXPECT_FALSE(second.wait(silence + std::chrono::seconds(2)));
  request.reply(request.bytes());
  EXPECT_EQ(response_of(first), "1");
  request = kept.pop();
  request.reply(request.bytes());
  EXPECT_EQ(response_of(second), "2");
}

} // namespace
} // namespace in_one_process

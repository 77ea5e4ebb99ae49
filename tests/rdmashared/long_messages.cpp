// SPDX-License-Identifier: MIT
// Messages that take more slots than a run has.
#include "in_one_process.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace in_one_process {
namespace {

constexpr size_t header = 24; // bytes of the message's slots
constexpr size_t run = 255;   // slots at most

// No two slots of it are alike.
std::string long_text(size_t length) {
  std::string made(length, '\0');
  for (size_t i = 0; i < length; ++i)
    made[i] = static_cast<char>(i * 2654435761U >> 16);
  return made;
}

size_t length_in(size_t slots, size_t slot_size = 64) {
  return slots * slot_size - header;
}

// The request, backwards.
RequestHandler mirrored() {
  return [](Request &&request) {
    std::string its = text(request.bytes());
    request.reply(bytes(std::string(its.rbegin(), its.rend())));
  };
}

void expect_mirrored(Caller &caller, size_t length, RequestOptions how = patient()) {
  const std::string request = long_text(length);
  try { // it may be a thread of the test's own
    // Not EXPECT_EQ: it would print megabytes.
    EXPECT_TRUE(ask(caller, request, how) == std::string(request.rbegin(), request.rend()))
        << length << " bytes";
  } catch (const Error &error) {
    ADD_FAILURE() << length << " bytes: " << error.what();
  }
}

TEST(LongMessages, OfAllSizesUpToTheArea) {
  Running server({.handler_threads = 2}, mirrored());
  Connected to(
      SenderOptions{.servers = {server.where()}, .slot_size = 64, .largest_response = 1 << 16});
  for (const size_t slots : {run - 1, run, run + 1, 2 * run, 2 * run + 1, size_t{1024}})
    for (const size_t less : {0, 1, 63}) {
      expect_mirrored(to.caller, length_in(slots) - less);
      expect_mirrored(to.caller, length_in(slots) - less,
                      {.max_response = RequestOptions::any_length, .limit = time_limit});
    }
  expect_mirrored(to.caller, 5);
  expect_mirrored(to.caller, 1024 * 64); // all of the area
  EXPECT_NE(error_of([&] { ask(to.caller, long_text(1024 * 64 + 1)); }), "no error");
}

TEST(LongMessages, OnlyTheResponseIsLong) {
  Running server({}, [](Request &&request) {
    request.reply(bytes(long_text(std::stoul(text(request.bytes())))));
  });
  Connected to(SenderOptions{.servers = {server.where()}, .slot_size = 64});
  for (const size_t length : {length_in(run), length_in(run + 1), length_in(1024)})
    EXPECT_TRUE(ask(to.caller, std::to_string(length), patient(length)) == long_text(length));
  // A response that is short goes by the slots of a long one as well.
  EXPECT_TRUE(ask(to.caller, "3", patient(length_in(1000))) == long_text(3));
  const std::string said =
      answer_too_long([&] { ask(to.caller, "20000", patient(length_in(300))); });
  EXPECT_TRUE(said.starts_with("RequestOptions::max_response too small")) << said;
}

TEST(LongMessages, OfMoreRunsThanAreUnderWayAtATime) {
  Running server({.slots = 1 << 17}, mirrored());
  Connected to(SenderOptions{
      .servers = {server.where()}, .slots = 1 << 17, .slot_size = 32, .area_slots = 1 << 17});
  const size_t most = size_t{3} << 15; // slots: three quarters of the ring
  expect_mirrored(to.caller, length_in(most, 32) - 16);
  const std::string why = error_of([&] { ask(to.caller, long_text(length_in(most, 32))); });
  EXPECT_NE(why.find("longer than the slots have room for"), why.npos) << why;
}

TEST(LongMessages, OfManyThreadsBesideShortOnes) {
  Running server({.handler_threads = 2}, mirrored());
  // Two long ones do not fit into the ring.
  Connected to(SenderOptions{.servers = {server.where()}, .slots = 800, .slot_size = 64});
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 6; ++thread)
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < 50; ++i)
        expect_mirrored(to.caller, thread < 3 ? length_in(300 + 100 * thread + i) : i);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(to.sender.counts().rnr, 0);
  EXPECT_EQ(server.server.counts().rnr, 0);
}

// The server says that it ends while a message is on its way: the rest of it still goes, and it is
// answered.
TEST(LongMessages, AreFinishedBeforeTheEnd) {
  Running server({.slots = 1 << 17, .grace = std::chrono::hours(1)}, // longer than the test takes
                 mirrored());
  Connected to(SenderOptions{
      .servers = {server.where()}, .slots = 1 << 17, .slot_size = 32, .area_slots = 1 << 17});
  // More runs than can be under way at a time.
  const std::string request = long_text(length_in(3 << 15, 32) - 16);
  Pending pending = to.caller.request_async(bytes(request), patient());
  // Then its first runs have come, beside some pings.
  while (server.server.counts().completions < 100)
    std::this_thread::yield();
  server.server.stop();
  EXPECT_TRUE(response_of(pending) == std::string(request.rbegin(), request.rend()));
  server.wait_for_end();
}

} // namespace
} // namespace in_one_process

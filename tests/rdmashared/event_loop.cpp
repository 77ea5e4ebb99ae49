// SPDX-License-Identifier: MIT
// Callers with an event loop of their own.
#include "in_one_process.hpp"

#include <rdmacommon/processes.hpp>

#include <gtest/gtest.h>

#include <sys/epoll.h>

#include <map>
#include <string>

namespace in_one_process {
namespace {

TEST(EventLoop, IsToldOfTheResponsesOfTwoSenders) {
  const auto echo = [](Request &&request) { request.reply(request.bytes()); };
  Running red({}, echo), blue({}, echo);
  Connected to_red(red), to_blue(blue);
  const rdmacommon::File epoll(
      rdmacommon::check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"));
  for (Caller *caller : {&to_red.caller, &to_blue.caller}) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = caller}};
    rdmacommon::check_errno(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, caller->fd(), &event),
                            "epoll_ctl");
  }
  constexpr int each = 20;
  std::map<std::string, int> heard;
  size_t left = 0;
  for (int i = 0; i < each; ++i)
    for (Caller *caller : {&to_red.caller, &to_blue.caller}) {
      const std::string words = (caller == &to_red.caller ? "red " : "blue ") + std::to_string(i);
      caller->request_then(
          bytes(words),
          [&, words](Pending &response) { heard[words] += response_of(response) == words; },
          patient());
      ++left;
    }
  while (left > 0) {
    epoll_event event{};
    ASSERT_EQ(epoll_wait(epoll.get(), &event, 1, 60'000), 1);
    left -= static_cast<Caller *>(event.data.ptr)->run_ready();
  }
  EXPECT_EQ(heard.size(), 2 * each);
  for (const auto &[words, times] : heard)
    EXPECT_EQ(times, 1) << words;
}

TEST(EventLoop, IsNotHeldUpByAFullArea) {
  Kept kept;
  Running server({}, keep_in(kept));
  Connected client({.servers = {server.where()}, .area_slots = 2});
  for (int i = 0; i < 2; ++i)
    client.caller.request_then({}, [](Pending &) {}, {.limit = std::chrono::hours(1)});
  EXPECT_THROW(client.caller.request_then({}, [](Pending &) {}, {.limit = std::chrono::hours(1)}),
               Error); // at once: a wait for room would take an hour
}

} // namespace
} // namespace in_one_process

// SPDX-License-Identifier: MIT
// The programs' side of the terminal: the values of --waiting, log lines, and the figures of
// --stats.
#pragma once

#include <rdmashared/basics.hpp>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

inline const std::vector<std::string> waiting_names = {"poll", "events", "adaptive"};
inline rdmashared::Waiting waiting_of(const std::string &name) {
  using rdmashared::Waiting;
  return name == "poll" ? Waiting::poll : name == "events" ? Waiting::events : Waiting::adaptive;
}

inline void log_line(rdmashared::Level, std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

inline void log_warning(rdmashared::Level level, std::string_view line) {
  if (level == rdmashared::Level::warning)
    log_line(level, line);
}

inline void print_counts(const char *whose, const rdmashared::Counts &counts) {
  std::printf("%s: %" PRIu64 " messages in %" PRIu64 " groups:", whose, counts.messages,
              counts.groups);
  for (uint32_t i = 0; i < counts.sizes.size(); ++i)
    if (counts.sizes.at(i) > 0)
      std::printf(" %" PRIu64 " of up to %u,", counts.sizes.at(i), i == 8 ? 255 : 1U << i);
  std::printf(" RNR: %" PRIu64 "\n", counts.rnr);
  const double each = counts.messages > 0 ? static_cast<double>(counts.messages) : 1;
  const auto of = [each](uint64_t count) { return static_cast<double>(count) / each; };
  // On SoftRoCE ibv_post_send is a system call; ibv_post_recv is none, but is counted here. A NIC
  // takes both from user space.
  std::printf("%s: each message: %.3f posts, %.3f completions, %.3f wakes, %.3f sleeps, %.3f "
              "system calls\n",
              whose, of(counts.posts), of(counts.completions), of(counts.wakes), of(counts.sleeps),
              of(counts.posts + counts.wakes + counts.sleeps + counts.other_calls));
}

// SPDX-License-Identifier: MIT
// The cost of each way: time, and CPU time of this process, for each message.
#pragma once

#include "ways_to_send.hpp"
#include "ways_to_wait.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <vector>

struct Cost {
  double elapsed_us = 0, cpu_us = 0;
};

// Adds up what is between start() and stop().
class CostMeter {
public:
  void start() { began_ = now(); }
  void stop() {
    const Cost end = now();
    sum_.elapsed_us += end.elapsed_us - began_.elapsed_us;
    sum_.cpu_us += end.cpu_us - began_.cpu_us;
  }
  double running_us() const { return sum_.elapsed_us + now().elapsed_us - began_.elapsed_us; }
  Cost each(int messages) const {
    return {.elapsed_us = sum_.elapsed_us / messages, .cpu_us = sum_.cpu_us / messages};
  }

private:
  static Cost now() {
    return {.elapsed_us = read(CLOCK_MONOTONIC), .cpu_us = read(CLOCK_PROCESS_CPUTIME_ID)};
  }
  static double read(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  }
  Cost began_, sum_;
};

// The client sends `size` messages; the server answers when it has all of them, and says whether to
// go on. Each side measures its own part.
using Wait = void (*)(const Side &, int messages);
using Send = void (*)(const Side &);
enum Answer : uint32_t { stop = 0, go_on = 1 };

inline Cost receive_rounds(const Side &side, int milliseconds, int size, Wait wait) {
  side.post_receives(size);
  side.exchange.send_done();
  CostMeter watch;
  int messages = 0;
  for (Answer answer = go_on; answer == go_on;) {
    watch.start();
    wait(side, size);
    messages += size;
    if (watch.running_us() > milliseconds * 1000)
      answer = stop;
    else
      side.post_receives(size); // before the client hears that it may go on
    side.answer(answer);
    watch.stop();
  }
  return watch.each(messages);
}

inline Cost send_rounds(const Side &side, int size, Send send) {
  side.exchange.receive_done();
  CostMeter watch;
  int messages = 0;
  do {
    side.post_receives(1); // for the answer
    watch.start();
    send(side);
    watch.stop();
    messages += size;
  } while (side.wait_answer() == go_on);
  return watch.each(messages);
}

inline void send_one(const Side &side) {
  side.send(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  side.wait_sent();
}

// As signal_last, and the last one wakes who waits for solicited messages only.
inline void send_solicited(const Side &side) {
  for (int i = 0; i < burst; ++i)
    side.send(last_signaled(i) ? IBV_SEND_SIGNALED | IBV_SEND_SOLICITED : 0);
  side.wait_sent();
}

// Repeats, whose median counts. The ways take turns: what disturbs a while disturbs all of them.
constexpr int repeats = 5;
using Costs = std::vector<std::array<Cost, repeats>>;

inline Cost median(std::array<Cost, repeats> costs) {
  const auto middle = [&costs](double Cost::*what) {
    std::nth_element(costs.begin(), costs.begin() + repeats / 2, costs.end(),
                     [what](const Cost &a, const Cost &b) { return a.*what < b.*what; });
    return costs[repeats / 2].*what;
  };
  return {.elapsed_us = middle(&Cost::elapsed_us), .cpu_us = middle(&Cost::cpu_us)};
}

struct WayToWait {
  const char *name;
  Wait wait;
};
struct WayToSend {
  const char *name;
  Send send;
};

constexpr std::array<WayToWait, 5> ways_to_wait{{{"poll, one at a time", poll_singly},
                                                 {"poll, up to 16 at a time", poll_batches},
                                                 {"poll in place", poll_extended},
                                                 {"sleep, any event", sleep_for_each},
                                                 {"sleep, solicited event", sleep_for_solicited}}};
constexpr std::array<WayToSend, 5> ways_to_send{{{"signal and wait for each", wait_for_each},
                                                 {"signal all of them", signal_all},
                                                 {"signal the last", signal_last},
                                                 {"the same, in one list", post_list},
                                                 {"the same, by ibv_wr_*", build_burst}}};

inline void print_row(const char *name, const std::vector<Cost> &costs) {
  std::printf("  %-24s", name);
  for (const Cost &cost : costs)
    std::printf("  %9.3f us  %9.3f us", cost.elapsed_us, cost.cpu_us);
  std::printf("\n");
}

// The server waits in every way, for single messages and for bursts; the client sends in one way
// only.
inline void measure_waiting(const Side &side, int milliseconds) {
  Costs single(ways_to_wait.size()), bursts(ways_to_wait.size());
  for (int repeat = 0; repeat < repeats; ++repeat)
    for (size_t way = 0; way < ways_to_wait.size(); ++way) {
      const Wait wait = ways_to_wait[way].wait;
      if (side.is_server) {
        single[way][repeat] = receive_rounds(side, milliseconds, 1, wait);
        bursts[way][repeat] = receive_rounds(side, milliseconds, burst, wait);
      } else {
        send_rounds(side, 1, send_one);
        send_rounds(side, burst, send_solicited);
      }
    }
  if (!side.is_server)
    return;
  std::printf("each message received: %10s  time          CPU    in bursts:  time          CPU\n",
              "");
  for (size_t way = 0; way < ways_to_wait.size(); ++way)
    print_row(ways_to_wait[way].name, {median(single[way]), median(bursts[way])});
}

// The client sends bursts in every way; the server waits in one way only.
inline void measure_sending(const Side &side, int milliseconds) {
  Costs costs(ways_to_send.size());
  for (int repeat = 0; repeat < repeats; ++repeat)
    for (size_t way = 0; way < ways_to_send.size(); ++way) {
      if (side.is_server)
        receive_rounds(side, milliseconds, burst, poll_batches);
      else
        costs[way][repeat] = send_rounds(side, burst, ways_to_send[way].send);
    }
  if (side.is_server)
    return;
  std::printf("each message sent: %14s  time          CPU\n", "");
  for (size_t way = 0; way < ways_to_send.size(); ++way)
    print_row(ways_to_send[way].name, {median(costs[way])});
}

// SPDX-License-Identifier: MIT
// 28_measure: how long a message takes. Client and server send one back and forth, and the client
// times every round.
//
// Lesson:  lessons/28_measure.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 28_measure
// By hand: measure                 the server, which answers
//          measure --host ADDRESS  the client, which measures; both need the same options

#include "ping_side.hpp"
#include "percentiles.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <sched.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

using namespace rdmacommon;

namespace {

struct Settings {
  PingSettings ping;
  uint32_t rounds = 5000, warm_up = 500;
  uint32_t every_us = 0, stall_ms = 0;
  bool is_pinned = false;
};

// Server and client each on one CPU, and not the same: no time is lost to moving, and each finds
// its cache warm.
void pin(bool is_server) {
  cpu_set_t allowed, one;
  check_errno(sched_getaffinity(0, sizeof allowed, &allowed), "sched_getaffinity");
  if (CPU_COUNT(&allowed) < 2)
    throw Error("--pin", "there is one CPU, which both sides cannot poll on");
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && (!is_server || CPU_COUNT(&one) == 0)) {
      CPU_ZERO(&one);
      CPU_SET(cpu, &one); // the server's is the first, the client's the last
    }
  check_errno(sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
}

// A clock has a price, which each measured time contains.
void print_clocks() {
  constexpr int looks = 10'000;
  const double began = monotonic_us();
  for (int i = 0; i < looks; ++i)
    monotonic_us();
  const double between = monotonic_us();
  for (int i = 0; i < looks; ++i)
    ticks();
  const double ended = monotonic_us();
  std::printf("a look at the clock: clock_gettime %.3f us, the CPU's counter %.3f us\n",
              (between - began) / looks, (ended - between) / looks);
}

// A result must agree with a second one that was measured in another way: here, the sum of the
// rounds with the time that passed.
void check_sum(double rounds_us, double passed_us) {
  if (rounds_us > 1.2 * passed_us || rounds_us < 0.8 * passed_us) {
    std::printf("all rounds together: %.3f us, while %.3f us passed\n", rounds_us, passed_us);
    throw Error("the times", "they do not add up");
  }
}

// A closed loop: the next round begins when this one has ended. One look at the clock is the end of
// the one and the beginning of the next, so that no time passes between rounds, unmeasured.
void measure(PingSide &side, const Settings &settings) {
  const TickLength length;
  Times times(settings.rounds);
  uint64_t first = 0, all = 0;
  // [rounds]
  const Instant started = both_clocks();
  uint64_t began = started.ticks;
  for (uint32_t round = 1; round <= settings.warm_up + settings.rounds; ++round) {
    side.ask(round); // waits for the answer to this one
    const uint64_t ended = ticks();
    const uint64_t took = ended - began;
    began = ended;
    all += took;
    if (round == 1)
      first = took;
    if (round > settings.warm_up)
      times.add(took);
  }
  const Instant stopped = both_clocks(); // before length.us(), which may wait
  all += stopped.ticks - began;          // since the last round, this thread may have lost the CPU
  const double tick_us = length.us();
  check_sum(static_cast<double>(all) * tick_us, stopped.us - started.us);
  // [rounds]
  // A round has two messages, one in each direction. A READ is one, though its packets go both
  // ways.
  const double unit = tick_us / (settings.ping.operation == Operation::read ? 1 : 2);
  times.sort();
  std::printf("%s, %u bytes, %s: ", name_of(settings.ping.operation), settings.ping.size,
              settings.ping.is_polling ? "polling" : "events");
  print_percentiles(times, unit);
  std::printf("the mean is %.3f us, and the first of all took %.3f us\n", times.mean() * unit,
              static_cast<double>(first) * unit);
}

// By a timetable: users do not wait with their requests until the requests of others have been
// answered.
void measure_by_timetable(PingSide &side, const Settings &settings) {
  const TickLength length;
  Times from_begin(settings.rounds), from_due(settings.rounds);
  for (uint32_t round = 1; round <= settings.warm_up; ++round)
    side.ask(round);
  // [schedule]
  const auto interval = static_cast<uint64_t>(settings.every_us / length.us());
  uint64_t due = ticks();
  for (uint32_t round = 1; round <= settings.rounds; ++round, due += interval) {
    while (ticks() < due) // too short to sleep
      ;
    const uint64_t began = ticks();
    side.ask(settings.warm_up + round);
    const uint64_t ended = ticks();
    from_begin.add(ended - began);
    from_due.add(ended - due);
  }
  // [schedule]
  from_begin.sort();
  from_due.sort();
  std::printf("from when each round began:      ");
  print_percentiles(from_begin, length.us());
  std::printf("from when it should have begun:  ");
  print_percentiles(from_due, length.us());
}

void serve(PingSide &side, const Settings &settings) {
  const bool is_asked =
      settings.ping.operation != Operation::read; // else our NIC is, and we are not
  const uint32_t rounds = is_asked ? settings.warm_up + settings.rounds : 0;
  for (uint32_t round = 1; round <= rounds; ++round) {
    side.receive(round);
    if (settings.stall_ms > 0 &&
        round == settings.warm_up + (settings.rounds + 1) / 2) // the stall is what is looked at
      std::this_thread::sleep_for(std::chrono::milliseconds(settings.stall_ms));
    side.send(round);
  }
}

void measure_program(int argc, char **argv) {
  CommandLine line{"How long a message takes. Both sides need the same options."};
  PairOptions options{line};
  Settings settings;
  std::string operation = "write", waiting = "poll";
  line.add("--operation", operation, "what each message is [write]", operation_names);
  line.add("--waiting", waiting, "how to learn that one has come [poll]", {"poll", "events"});
  line.add("--size", settings.ping.size, "bytes of a message [64]", 1, 1 << 20);
  line.add("--rounds", settings.rounds, "that are measured [5000]", 1, 10'000'000);
  line.add("--warm-up", settings.warm_up, "rounds before these [500]", 0, 10'000'000);
  line.add("--every", settings.every_us,
           "microseconds from one round's beginning to the next one's; 0: when it has ended [0]", 0,
           1'000'000);
  line.add("--stall", settings.stall_ms,
           "for so many milliseconds the server stops, half-way, once [0]", 0, 4000);
  line.add("--inline", settings.ping.max_inline,
           "bytes of the largest message that goes inline; 0: none [128]", 0, 128);
  line.add("--pin", settings.is_pinned, "each side stays on one CPU");
  line.parse(argc, argv);
  settings.ping.operation = operation_of(operation);
  settings.ping.is_polling = waiting == "poll";
  if (!settings.ping.is_polling && settings.ping.operation == Operation::write)
    line.reject("--waiting events", "nobody is told of a WRITE");
  if (settings.stall_ms > 0 && settings.ping.operation == Operation::read)
    line.reject("--stall", "a READ does not ask the server's program");
  if (settings.is_pinned)
    pin(options.is_server());
  const Port port = open_port(options);
  Exchange exchange(options);
  PingSide side(port, exchange, options, settings.ping);
  if (options.is_server()) {
    serve(side, settings);
    exchange.receive_done(std::chrono::hours(1));
  } else {
    if (settings.ping.operation == Operation::write && !side.is_in_order())
      std::printf("this device does not promise that the last byte of a WRITE comes last\n");
    print_clocks();
    settings.every_us > 0 ? measure_by_timetable(side, settings) : measure(side, settings);
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, measure_program);
}

// SPDX-License-Identifier: MIT
// What sending costs: separate requests, the same chained in one call, and one request for the
// whole group.
#pragma once

#include "group_protocol.hpp"
#include "group_side.hpp"

#include <rdmacommon/stopwatch.hpp>

#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

// [ways]
enum class Way { separate, chained, group };

// Sends one turn: `count` slots from `first` on, each with a message. The last request asks for a
// completion, so that the send queue empties between turns.
inline void send_turn(Side &side, Way way, uint32_t first, uint32_t count) {
  const uint32_t size = side.mirror.slot_size;
  if (way == Way::group) {
    add_run(side.queue, side.mirror, {.first = first, .count = count}, count * size,
            IBV_SEND_SIGNALED);
  } else {
    for (uint32_t i = 0; i < count; ++i) {
      add_run(side.queue, side.mirror, {.first = first + i, .count = 1}, size,
              i + 1 == count ? IBV_SEND_SIGNALED : 0);
      if (way == Way::separate)
        side.queue.post();
    }
  }
  side.queue.post();
}
// [ways]

// [turns]
// Turns without a pause, as many as there is room for.
class Turns {
public:
  Turns(Side &side, const Settings &settings) : side_(side), settings_(settings) {}

  // us for each turn; or of that, what its posts take. To look at the clock has its price, so it is
  // one or the other.
  enum class Part { all, posts };
  double each(Way way, uint32_t count, Part part = Part::all) {
    const uint32_t requests = way == Way::group ? 1 : count;
    const uint32_t places = settings_.shape.slots / count; // for turns, none across the ring's end
    const rdmacommon::Stopwatch watch;
    double posts_ms = 0;
    uint32_t turns = 0;
    do {
      while (under_way_ + count > places * count || side_.queue.room() < requests)
        wait();
      if (part == Part::posts)
        posts_ms -= watch.elapsed_ms();
      send_turn(side_, way, turns++ % places * count, count);
      if (part == Part::posts)
        posts_ms += watch.elapsed_ms();
      under_way_ += count;
      take(); // what has come meanwhile
    } while (watch.elapsed_ms() < settings_.milliseconds);
    while (under_way_ > 0)
      wait();
    return (part == Part::posts ? posts_ms : watch.elapsed_ms()) * 1000 / turns;
  }

private:
  void take() { note(rdmacommon::poll_batch(side_.cq.get(), batch_)); }
  void wait() { note(side_.wait(batch_)); }
  void note(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      rdmacommon::check_wc(batch_[i], "a request");
      if ((batch_[i].opcode & IBV_WC_RECV) == 0) {
        side_.queue.completed(batch_[i]);
        continue;
      }
      const uint32_t credit = side_.receives->received(batch_[i]).count;
      if (credit > under_way_)
        throw rdmacommon::Error("the server's credit", "it is not for what was sent");
      under_way_ -= credit;
    }
    side_.receives->repost();
  }

  Side &side_;
  const Settings &settings_;
  std::array<ibv_wc, 64> batch_;
  uint32_t under_way_ = 0; // slots
};
// [turns]

// [measure]
// Turns without a pause: us for each slot. The ways take turns, so that what disturbs a while
// disturbs all of them.
inline void measure_turns(Turns &turns, const Settings &settings) {
  std::printf("each slot:            separate       chained         group    group/separate   "
              "group/chained\n");
  for (const uint32_t count : {4U, 16U, 64U, 255U}) {
    if (count > settings.shape.slots)
      break;
    std::array<std::vector<double>, 3> us;
    for (uint32_t repeat = 0; repeat < settings.repeats; ++repeat)
      for (const Way way : {Way::separate, Way::chained, Way::group})
        us[static_cast<size_t>(way)].push_back(turns.each(way, count) / count);
    using rdmacommon::median;
    const double separate = median(us[0]), chained = median(us[1]), group = median(us[2]);
    std::printf("  %3u in a turn  %9.3f us  %9.3f us  %9.3f us    %9.3f times  %9.3f times\n",
                count, separate, chained, group, separate / group, chained / group);
  }
}

// us for each call of ibv_post_send().
inline void measure_posts(Turns &turns, const Settings &settings) {
  struct What {
    const char *name;
    Way way;
    uint32_t count;
  };
  std::printf("each call of ibv_post_send:\n");
  for (const What &what :
       {What{"1 request, 1 slot", Way::group, 1}, What{"16 requests, 16 slots", Way::chained, 16},
        What{"1 request, 16 slots", Way::group, 16}}) {
    if (what.count > settings.shape.slots)
      break;
    std::vector<double> us;
    for (uint32_t repeat = 0; repeat < settings.repeats; ++repeat)
      us.push_back(turns.each(what.way, what.count, Turns::Part::posts));
    std::printf("  %-21s  %9.3f us\n", what.name, rdmacommon::median(us));
  }
}
// [measure]

inline void measure(Side &side, std::span<std::byte> slots, const Settings &settings) {
  const uint32_t size = settings.shape.slot_size;
  for (uint32_t slot = 0; slot < settings.shape.slots; ++slot) { // nobody else uses them now
    const rdmacommon::SlotHeader header = rdmacommon::to_wire(
        {.length = size - uint32_t{sizeof header}, .kind = filler, .flags = 0, .id = slot});
    std::memcpy(slots.data() + size_t{slot} * size, &header, sizeof header);
  }
  Turns turns(side, settings);
  measure_turns(turns, settings);
  measure_posts(turns, settings);
}

// SPDX-License-Identifier: MIT
// 21_group_send: messages of many processes go over with few requests. Each request takes a run of
// slots, as long as what is ready now, into the same slots of the server; immediate data say which.
//
// Lesson:  lessons/21_group_send.md; the ring is lesson 18's, what sends runs is
//          common/src/slot_runs.cpp
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 21_group_send
// By hand: group_send                   the server
//          group_send --host ADDRESS    the client, with the same --slots, --slot-size, --processes

#include "measure_groups.hpp"
#include "producers.hpp"
#include "group_protocol.hpp"
#include "mirror_server.hpp"
#include "group_side.hpp"

#include <rdmacommon/ring_host.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <endian.h>

#include <array>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <span>
#include <vector>

using namespace rdmacommon;

namespace {

class Sender {
public:
  Sender(Side &side, RingHost &host, const Settings &settings)
      : side_(side), host_(host), settings_(settings) {}

  // Sends what the producers put into the ring, until they have gone and the server has given all
  // back.
  void send_all() {
    for (;;) {
      const bool has_sent = send_ready();
      if (take_completions() || has_sent)
        continue;
      if (host_.workers() == 0 && sent_.empty())
        return;
      sleep();
    }
  }

  // [own]
  // A message of the sender's own: it goes through the ring like all others.
  template <typename Body> void send(Kind kind, const Body &body) {
    auto claim = host_.ring().claim(SlotRing::own_worker, sizeof(SlotHeader) + sizeof body,
                                    settings_.timeout);
    write_message(claim.data(), {.length = sizeof body, .kind = kind, .flags = 0, .id = 0}, body);
    if (!claim.publish())
      throw Error("a message", "its slot was taken away");
    while (send_ready() || take_completions() || !sent_.empty())
      if (!sent_.empty())
        sleep();
  }
  // [own]

  EndMessage sent() const { return {.messages = htobe64(messages_), .bytes = htobe64(bytes_)}; }

  void print() const {
    std::printf("slots in a group: 1: %u groups, 2 to 3: %u groups, 4 to 15: %u groups, "
                "16 to 63: %u groups, more: %u groups\n",
                groups_[0], groups_[1], groups_[2] + groups_[3], groups_[4] + groups_[5],
                groups_[6] + groups_[7]);
    std::printf("ibv_post_send was called %.3f times for each message\n",
                static_cast<double>(side_.queue.posts()) / static_cast<double>(messages_ + 1));
  }

private:
  // [send-ready]
  // Sends all that is ready now, and does not wait for more: while one group is sent, the next one
  // gathers.
  bool send_ready() {
    std::vector<SlotRun> runs;
    while (runs.size() < side_.queue.room() && sent_.size() + runs.size() < side_.runs) {
      const SlotRun run = host_.ring().take(settings_.group);
      if (run.count == 0)
        break;
      runs.push_back(run);
    }
    for (const SlotRun &run : runs) {
      // The slots of a run are free only after its request has completed, so the last request of
      // a post asks for a completion.
      const unsigned flags = &run == &runs.back() ? IBV_SEND_SIGNALED : 0;
      add_run(side_.queue, side_.mirror, {.first = run.first, .count = run.count}, length_of(run),
              flags);
      sent_.push_back({.run = run, .request = side_.queue.added()});
      ++groups_[std::bit_width(run.count) - 1];
    }
    side_.queue.post();
    return !runs.empty();
  }
  // [send-ready]

  // [length-of]
  // How many bytes to send: of the last slot, only the part that is used.
  uint32_t length_of(const SlotRun &run) {
    uint32_t length = 0;
    for (uint32_t at = 0; at < run.count;) {
      const SlotMessage message = host_.ring().message(run, at);
      length = (message.slot - run.first) * settings_.shape.slot_size +
               static_cast<uint32_t>(message.data.size());
      if (message.worker == SlotRing::own_worker)
        continue;
      ++messages_;
      bytes_ += message.data.size() - sizeof(SlotHeader);
    }
    return length;
  }
  // [length-of]

  // [take-completions]
  bool take_completions() {
    std::array<ibv_wc, 64> batch;
    const size_t count = poll_batch(side_.cq.get(), batch);
    for (const ibv_wc &wc : std::span(batch.data(), count)) {
      check_wc(wc, "a request");
      if ((wc.opcode & IBV_WC_RECV) != 0)
        credited_ += checked_credit(wc);
      else
        side_.queue.completed(wc);
    }
    side_.receives->repost(); // before anything is sent that the server could answer
    // Both must be true: the server has finished with its slots, and our own NIC with ours.
    for (; !sent_.empty() && sent_.front().run.count <= credited_ &&
           sent_.front().request <= side_.queue.done();
         sent_.pop_front()) {
      credited_ -= sent_.front().run.count;
      host_.ring().give_back(sent_.front().run);
    }
    return count > 0;
  }
  // [take-completions]

  // [credit]
  // The server must give back the runs in the order in which we have sent them.
  uint32_t checked_credit(const ibv_wc &wc) {
    const Run credit = side_.receives->received(wc);
    uint32_t skip = credited_, count = 0; // slots
    for (const Sent &sent : sent_) {
      if (skip >= sent.run.count) {
        skip -= sent.run.count;
        continue;
      }
      if (skip != 0 || count == credit.count || sent.run.first != credit.first + count)
        break;
      count += sent.run.count;
    }
    if (wc.byte_len != 0 || count != credit.count)
      throw Error("the server's credit", "it is not for what was sent");
    return count;
  }
  // [credit]

  // [sleep]
  // Sleeps until something has completed or, if there is room to send, a message is ready. Poll,
  // arm, poll: for both.
  void sleep() {
    const bool can_send = side_.queue.room() > 0 && sent_.size() < side_.runs;
    const bool is_ready = can_send && !host_.arm();
    check_rc(ibv_req_notify_cq(side_.cq.get(), 0), "ibv_req_notify_cq");
    if (!is_ready && !take_completions() && !side_.sleep(can_send ? host_.fd() : -1))
      take_the_last();
    if (can_send)
      host_.handle_events();
  }

  // The peer has ended, so it sends nothing more. Our own NIC still completes each request, within
  // the time of its retries: the last credit may have come before the completion of the request
  // that it answers.
  void take_the_last() {
    while (!take_completions())
      if (side_.queue.done() == side_.queue.added())
        Side::gone();
  }
  // [sleep]

  struct Sent {
    SlotRun run;
    uint64_t request; // the send queue's number for it
  };
  Side &side_;
  RingHost &host_;
  const Settings &settings_;
  std::deque<Sent> sent_; // and not given back to the producers yet
  uint32_t credited_ = 0; // of these, slots that the server has given back
  uint64_t messages_ = 0, bytes_ = 0;
  std::array<uint32_t, 8> groups_{}; // by the number of bits of their slots
};

void run_client(const PairOptions &options, const Settings &settings) {
  RingHost host(settings.shape);
  Producers producers(host, settings);
  const Port port = open_port(options);
  Exchange exchange(options);
  Side side(port, exchange, options, settings, host.ring().data());
  Sender sender(side, host, settings);
  sender.send(Kind::begin, Begin{htonl(protocol_version), htonl(settings.shape.slots),
                                 htonl(settings.shape.slot_size), htonl(settings.processes)});
  producers.start();
  sender.send_all();
  producers.wait();
  const EndMessage end = sender.sent();
  std::printf("%" PRIu64 " messages of %u processes, %" PRIu64
              " bytes: all are sent and given back\n",
              be64toh(end.messages), settings.processes, be64toh(end.bytes));
  sender.print();
  if (settings.milliseconds > 0)
    measure(side, host.ring().data(), settings);
  sender.send(Kind::end, end);
  exchange.finish();
}

void run_server(const PairOptions &options, const Settings &settings) {
  const Port port = open_port(options);
  std::vector<std::byte> slots(size_t{settings.shape.slots} * settings.shape.slot_size);
  Exchange exchange(options);
  Side side(port, exchange, options, settings, slots);
  Inbox inbox(slots, settings);
  Server server(side, inbox);
  server.serve_until(&Inbox::has_begun);
  std::printf("the client has %u processes, and %u slots of %u bytes\n", settings.processes,
              settings.shape.slots, settings.shape.slot_size);
  server.serve_until(&Inbox::has_ended);
  server.finish(options.timeout);
  exchange.finish();
}

void group_send(int argc, char **argv) {
  CommandLine line{"Sends the messages of many processes in groups: one request for many."};
  PairOptions options{line};
  Settings settings;
  line.add("--slots", settings.shape.slots,
           "of ring and mirror, a power of two, on both sides [1024]", 1, SlotRing::max_slots);
  line.add("--slot-size", settings.shape.slot_size, "bytes, a multiple of 64, on both sides [64]",
           64, 1 << 20);
  line.add("--processes", settings.processes, "that have messages, on both sides [4]", 1, 1024);
  line.add("--group", settings.group, "client: slots in a group, at most [255]", 1,
           SlotRing::longest_run);
  line.add("--messages", settings.messages, "client: of each process [1000]", 0, 1'000'000'000);
  line.add("--longest", settings.longest, "client: random bytes in a message, at most [300]", 0,
           1 << 20);
  line.add("--spin", settings.spin, "how often to look before going to sleep [1000]", 0, 1'000'000);
  line.add("--repeats", settings.repeats, "client: of the measurement [5]", 1, 1000);
  line.add("--measure", settings.milliseconds,
           "client: ms for each figure, or 0: do not measure [20]", 0, 1000);
  line.parse(argc, argv);
  settings.timeout = options.timeout;
  if (options.is_server())
    run_server(options, settings);
  else
    run_client(options, settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, group_send);
}

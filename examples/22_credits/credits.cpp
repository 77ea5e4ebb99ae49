// SPDX-License-Identifier: MIT
// 22_credits: the program of lesson 21, for any number of requests. A side uses a slot again when
// the other side has said that it has taken the message out.
//
// Lesson:  lessons/22_credits.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 22_credits
// By hand: credits                 the server, which answers
//          credits --host ADDRESS  the client, which has the callers

#include "credit_callers.hpp"
#include "credit_connection.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/options.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace rdmacommon;

namespace {

// ---- one side; both are alike

class Side {
public:
  Side(Connection &connection, uint32_t group) : connection_(connection), group_(group) {}

  // ---- out

  // [put]
  uint32_t room() const { return free_; } // so many messages can be put

  void put(uint32_t id, std::string_view text) {
    --free_;
    Message &slot = connection_.out[put_++ % slot_count];
    slot.length = htonl(static_cast<uint32_t>(text.size()));
    slot.id = htonl(id);
    text.copy(slot.text.data(), slot.text.size());
  }
  // [put]

  // [post]
  // Posts a credit if one is due, and what has been put, as far as the other side can take it.
  void post() {
    give_credit();
    while (posted_ != put_ && sent_.size() < runs_ahead && under_way_ < Connection::sends) {
      const uint32_t first = posted_ % slot_count;
      // A run ends where the ring ends: a WRITE has one destination.
      const uint32_t count = std::min({group_, put_ - posted_, slot_count - first});
      connection_.send({.first = first, .count = count});
      posted_ += count;
      ++under_way_;
      sent_.push_back({.count = count, .number = ++requests_});
      ++runs;
    }
  }
  // [post]

  // ---- in

  // Sleeps until something has completed, and calls f(id, text) for each message that has come.
  // @param answers f() puts an answer to each message. So a run waits in its slots until there is
  //                room for its answers
  // @return false if the peer will send nothing more
  template <typename Function> bool take(bool answers, Function f) {
    std::array<ibv_wc, 32> done;
    const size_t count = connection_.wait(done);
    // [take]
    for (const ibv_wc &wc : std::span(done).first(count)) {
      check_wc(wc, "a run or a credit");
      if ((wc.opcode & IBV_WC_RECV) == 0)
        --under_way_;
      else
        received(wc);
    }
    free_slots();
    while (!arrived_.empty() && (!answers || arrived_.front().count <= free_)) {
      const Run run = arrived_.front();
      arrived_.pop_front();
      std::vector<Message> copy(run.count);
      std::memcpy(copy.data(), &connection_.in[run.first], run.count * sizeof(Message));
      ++taken_; // with the next credit, the peer has the slots again
      for (const Message &message : copy)
        f(ntohl(message.id), text_of(message));
    }
    // [take]
    return count > 0;
  }

  uint32_t runs = 0, credits = 0; // runs and credits that this side has sent

private:
  void received(const ibv_wc &wc) {
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
      refuse("the peer's run", "it is not an RDMA WRITE with immediate data");
    // [received]
    connection_.post_receive();
    const Run run = from_immediate(wc.imm_data);
    if (run.count == 0)
      take_credit(run.first);
    else
      arrived_.push_back(checked(run, wc.byte_len));
    // [received]
  }

  // [give-credit]
  // Tells the other side how many runs have been taken since the connection began.
  void give_credit() {
    if (taken_ == told_ || under_way_ == Connection::sends)
      return;
    told_ = taken_;
    connection_.send({.first = told_ % Run::first_limit, .count = 0});
    ++under_way_;
    ++requests_;
    ++credits;
  }
  // [give-credit]

  // [take-credit]
  // @param runs that the other side has taken since the connection began, modulo 2^24
  void take_credit(uint32_t runs) {
    const uint32_t more = (runs - given_back_) % Run::first_limit;
    if (more > sent_.size() - returned_)
      refuse("the peer's credit", "it has taken more runs than were sent");
    returned_ += more;
    given_back_ += more;
  }
  // [take-credit]

  // [free-slots]
  // The credit for a run can come before the completion of the run. Until then the slots belong to
  // our NIC (lesson 02). Requests complete in order.
  void free_slots() {
    for (; returned_ > 0 && sent_.front().number <= requests_ - under_way_; --returned_) {
      free_ += sent_.front().count;
      sent_.pop_front();
    }
  }
  // [free-slots]

  // [checked]
  Run checked(Run run, uint32_t length) {
    if (come_ - told_ == runs_ahead)
      refuse("the peer's run", "it has no credit for one more");
    // [checked]
    if (run.first != next_ || run.count > slot_count - run.first)
      refuse("the peer's run", "it is not the one that must come next");
    if (length != run.count * sizeof(Message))
      refuse("the peer's run",
             std::to_string(length) + " bytes are not " + std::to_string(run.count) + " slots");
    next_ = (run.first + run.count) % slot_count;
    ++come_;
    return run;
  }

  Connection &connection_;
  const uint32_t group_;
  uint32_t requests_ = 0, under_way_ = 0; // posted; of these, not completed

  // Out. put_ and posted_ count slots, and go on at the end of the ring.
  uint32_t free_ = slot_count, put_ = 0, posted_ = 0;
  struct Sent {
    uint32_t count, number; // slots; its place among all requests posted
  };
  std::deque<Sent> sent_;                  // runs whose slots are not free
  uint32_t returned_ = 0, given_back_ = 0; // runs that the other side has taken: of sent_; in all
  // In. The next run begins with slot next_. Runs that have come, that were taken, and of which the
  // other side has been told.
  uint32_t next_ = 0, come_ = 0, taken_ = 0, told_ = 0;
  std::deque<Run> arrived_; // come, and not taken
};

// ---- the server

// [server]
void server(Side &side) {
  uint32_t answered = 0;
  while (side.take(true, [&](uint32_t id, std::string_view text) {
    side.put(id, text);
    ++answered;
  }))
    side.post();
  std::printf("%u requests answered\n", answered);
}
// [server]

// ---- the client

void client(Side &side, uint32_t count, uint32_t each) {
  const uint32_t all = count * each;
  Callers callers(count);
  std::deque<uint32_t> ready; // callers that want to ask
  for (uint32_t id = 0; id < count; ++id)
    ready.push_back(id);
  uint32_t asked = 0, answered = 0;
  // [client]
  while (answered < all) {
    for (; asked < all && !ready.empty() && side.room() > 0; ++asked) {
      side.put(ready.front(), callers.ask(ready.front()));
      ready.pop_front();
    }
    side.post();
    const bool is_there = side.take(false, [&](uint32_t id, std::string_view text) {
      callers.answered(id, text);
      ready.push_back(id);
      ++answered;
    });
    if (!is_there)
      refuse("the peer", "it is gone");
  }
  // [client]
  std::printf("%u requests of %u callers are answered\n", answered, count);
  std::printf("each of the %u slots was used %u times\n", slot_count, asked / slot_count);
  std::printf("sent %u runs, %u credits\n", side.runs, side.credits);
}

void credits(int argc, char **argv) {
  CommandLine line{"Sends the requests of many callers in runs; credits give the slots back."};
  PairOptions options{line};
  uint32_t callers = 128, each = 100, group = 16;
  line.add("--callers", callers, "client: how many ask at a time [128]", 1, 10'000);
  line.add("--requests", each, "client: how often each of them asks [100]", 1, 100'000);
  line.add("--group", group, "most messages of a run [16]", 1, Run::count_limit - 1);
  line.parse(argc, argv);

  const Port port = open_port(options);
  Exchange exchange(options);
  Connection connection(port, exchange, options);
  Side side(connection, group);
  if (options.is_server()) {
    server(side);
    exchange.receive_done(); // or the client has died
  } else {
    client(side, callers, each);
    exchange.send_done();
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, credits);
}

// SPDX-License-Identifier: MIT
// 21_group_send: many callers send small requests. One RDMA WRITE sends all the requests that are
// there, and one sends their answers.
//
// Lesson:  lessons/21_group_send.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 21_group_send
// By hand: group_send                 the server, which answers
//          group_send --host ADDRESS  the client, which has the callers

#include "group_callers.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace rdmacommon;

namespace {

// [slots]
constexpr std::array<uint32_t, 3> groups{1, 8, 64}; // limits to try, one after the other
constexpr uint32_t requests = 1024;                 // for each limit
// Each slot is used once: the other side gives none back.
constexpr uint32_t slot_count = groups.size() * requests;

using Slots = std::array<Message, slot_count>;
// [slots]

// ---- one side of the connection; both are alike

class Side {
public:
  // [side]
  Side(const Port &port, Exchange &exchange, const PairOptions &options)
      : timeout_(options.timeout), pd_(alloc_pd(port.context.get())),
        out_mr_(reg_mr(pd_.get(), &out_, sizeof out_, 0)),
        in_mr_(
            reg_mr(pd_.get(), &in_, sizeof in_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
        channel_(create_comp_channel(port.context.get())),
        cq_(create_cq(port.context.get(), sends + receives, channel_.get())),
        qp_(create_rc_qp(pd_.get(), cq_.get(),
                         {.max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1})) {
    to_init(qp_.get(), port, IBV_ACCESS_REMOTE_WRITE);
    for (uint32_t i = 0; i < receives; ++i)
      post_recv(qp_.get(), {}); // no SGE: the messages go to in_
    theirs_ = connect(qp_.get(), port, exchange, options, share(in_mr_.get()));
    if (theirs_.length != sizeof in_)
      refuse("the peer's memory", "its size is not that of ours");
  }
  // [side]

  // [put]
  // Copies a message into the next slot. It goes with the next post().
  void put(uint32_t id, std::string_view text) {
    Message &slot = out_[put_++];
    slot.length = htonl(static_cast<uint32_t>(text.size()));
    slot.id = htonl(id);
    text.copy(slot.text.data(), slot.text.size());
  }
  // [put]

  // [post]
  // Posts what has been put, in runs of up to `group` slots. Does not wait for more. If the send
  // queue is full, the other messages wait in their slots for the next post().
  void post(uint32_t group) {
    while (posted_ < put_ && under_way_ < sends) {
      const Run run{.first = posted_, .count = std::min(group, put_ - posted_)};
      ibv_sge from = piece(out_mr_.get(), &out_[run.first], run.count * sizeof(Message));
      const uint64_t there = theirs_.address + run.first * sizeof(Message);
      post_send(qp_.get(), {.sg_list = &from,
                            .num_sge = 1,
                            .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                            .send_flags = IBV_SEND_SIGNALED,
                            .imm_data = to_immediate(run),
                            .wr = {.rdma = {.remote_addr = there, .rkey = theirs_.rkey}}});
      posted_ += run.count;
      ++under_way_;
      ++counts.posts;
      counts.largest = std::max(counts.largest, run.count);
    }
  }
  // [post]

  // [take]
  // Sleeps until something has completed. Calls f(id, text) for each message that has come.
  template <typename Function> void take(Function f) {
    std::array<ibv_wc, 32> done;
    const size_t count = wait_for_completions(cq_.get(), done, "a run", timeout_);
    for (const ibv_wc &wc : std::span(done).first(count)) {
      check_wc(wc, "a run");
      ++counts.completions;
      if ((wc.opcode & IBV_WC_RECV) == 0) {
        --under_way_; // one of ours: its place in the send queue is free
        continue;
      }
      const Run run = checked(wc);
      std::vector<Message> copy(run.count); // the peer can still change the original
      std::memcpy(copy.data(), &in_[run.first], wc.byte_len);
      for (const Message &message : copy)
        f(ntohl(message.id), text_of(message));
    }
  }
  // [take]

  uint32_t taken() const { return taken_; } // slots that have come
  bool has_more_to_post() const { return posted_ < put_; }
  bool is_sending() const { return under_way_ > 0; }

  struct Counts {
    uint32_t posts = 0, completions = 0, largest = 0;
  } counts;

private:
  // [checked]
  // Compares what a completion says about its run with what must come.
  Run checked(const ibv_wc &wc) {
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
      refuse("the peer's run", "it is not an RDMA WRITE with immediate data");
    const Run run = from_immediate(wc.imm_data);
    if (run.first != taken_ || run.count == 0 || run.count > slot_count - run.first)
      refuse("the peer's run", "it is not the one that must come next");
    if (wc.byte_len != run.count * sizeof(Message))
      refuse("the peer's run", std::to_string(wc.byte_len) + " bytes are not " +
                                   std::to_string(run.count) + " slots");
    taken_ += run.count;
    return run;
  }

  // [checked]

  static constexpr uint32_t sends = 64;            // places of the send queue
  static constexpr uint32_t receives = slot_count; // a run has at least one slot

  const std::chrono::milliseconds timeout_;
  Slots out_{}, in_{};
  unique_pd pd_;
  unique_mr out_mr_, in_mr_;
  unique_comp_channel channel_;
  unique_cq cq_;
  unique_qp qp_;
  RemoteMemory theirs_{};
  uint32_t put_ = 0, posted_ = 0, taken_ = 0; // slots: of out_, of out_, of in_
  uint32_t under_way_ = 0;                    // runs posted, and not completed
};

// ---- the server

// [server]
void server(Side &side) {
  uint32_t end = 0;
  for (const uint32_t group : groups) {
    end += requests;
    while (side.taken() < end || side.has_more_to_post()) {
      side.take([&](uint32_t id, std::string_view text) { side.put(id, text); });
      side.post(group);
    }
  }
  std::printf("%u requests answered\n", side.taken());
}
// [server]

// ---- the client

// [client]
void client(Side &side, uint32_t count, uint32_t group) {
  side.counts = {};
  const Stopwatch watch;
  Callers callers(count);
  uint32_t asked = 0, answered = 0;
  for (; asked < count; ++asked)
    side.put(asked, callers.ask(asked));
  while (answered < requests || side.is_sending()) {
    side.post(group);
    side.take([&](uint32_t id, std::string_view text) {
      callers.answered(id, text);
      ++answered;
      if (asked < requests) {
        ++asked;
        side.put(id, callers.ask(id));
      }
    });
  }
  std::printf("%5u %9u %7u %13u %13u %13.3f us\n", group, requests, side.counts.posts,
              side.counts.completions, side.counts.largest, watch.elapsed_ms() * 1000 / requests);
}
// [client]

void group_send(int argc, char **argv) {
  CommandLine line{"Sends the requests of many callers in runs."};
  PairOptions options{line};
  uint32_t callers = 64;
  line.add("--callers", callers, "client: how many ask at a time [64]", 1, requests);
  line.parse(argc, argv);

  const Port port = open_port(options);
  Exchange exchange(options);
  Side side(port, exchange, options);
  if (options.is_server()) {
    server(side);
  } else {
    std::printf("group  requests   posts   completions   largest run   each request\n");
    for (const uint32_t group : groups)
      client(side, callers, group);
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, group_send);
}

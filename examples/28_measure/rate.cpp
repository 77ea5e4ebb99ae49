// SPDX-License-Identifier: MIT
// Measures messages per second: the client sends without a pause, as many as its send queue holds.
// The server's program sleeps, except with WRITE_WITH_IMM: then it takes each completion, and gives
// credits.
//
// Lesson:  lessons/28_measure.md
// Run:     ./lab run 28_measure --program rate
// By hand: rate                 the server, whose memory it is
//          rate --host ADDRESS  the client, which measures; both need the same options

#include "credits.hpp"
#include "operations.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/stopwatch.hpp>
#include <rdmacommon/work_queues.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

ibv_wr_opcode opcode_of(Operation operation) {
  switch (operation) {
  case Operation::read:
    return IBV_WR_RDMA_READ;
  case Operation::write_imm:
    return IBV_WR_RDMA_WRITE_WITH_IMM;
  default:
    return IBV_WR_RDMA_WRITE;
  }
}

struct Settings {
  Operation operation = Operation::write;
  uint32_t size = 64, chain = 1, messages = 20'000;
};

// Keeps up to `depth` requests in the send queue. If the server learns of each message, a request
// also needs a credit.
class Flood {
public:
  // @param credits of a server that learns of each message; null if it learns of none
  Flood(ibv_qp *qp, ibv_cq *cq, Credits *credits, const Exchange &exchange,
        const ibv_send_wr &request)
      : cq_(cq), queue_(qp, depth), credits_(credits), exchange_(exchange), request_(request) {}
  static constexpr uint32_t depth = 128;
  // [flood]
  // @return how many were sent: full chains only
  uint64_t run(uint32_t messages, uint32_t chain) {
    const uint64_t before = queue_.added();
    for (uint64_t sent = 0; sent < messages; sent += chain) {
      while (queue_.room() < chain || (credits_ && credits_->left() < chain))
        take();
      for (uint32_t i = 0; i < chain; ++i) {
        const bool is_last = sent + i + 1 >= messages && i + 1 == chain;
        request_.send_flags = is_last ? IBV_SEND_SIGNALED : 0; // and one in 64 anyway
        queue_.add(request_);
      }
      queue_.post();
      if (credits_)
        credits_->use(chain);
    }
    // Wait until all messages are delivered, and until the server has taken them and given all
    // credits back.
    while (queue_.done() < queue_.added() || (credits_ && credits_->left() < depth))
      take();
    return queue_.added() - before;
  }
  // [flood]
private:
  void take() {
    const size_t count = poll_batch(cq_, done_);
    idle_ = count == 0 ? idle_ + 1 : 0;
    if (idle_ == looks) {
      idle_ = 0;
      if (exchange_.can_receive()) // it has nothing to say before our "done"
        throw Error("the server", "it has ended");
    }
    for (const ibv_wc &wc : std::span(done_).first(count))
      if (credits_ && is_receive(wc))
        credits_->take(wc);
      else
        queue_.completed(wc); // throws if it failed; a peer that is gone makes it fail
  }

  ibv_cq *cq_;
  SendQueue queue_;
  Credits *credits_;
  const Exchange &exchange_;
  ibv_send_wr request_;
  uint32_t idle_ = 0;
  std::array<ibv_wc, 16> done_{};
};

void measure(Flood &flood, const Settings &settings) {
  flood.run(settings.messages / 10 + 1, settings.chain); // warms up
  const Stopwatch watch;
  const double cpu_before = machine_cpu_ms();
  const auto sent = static_cast<double>(flood.run(settings.messages, settings.chain));
  const double took_ms = watch.elapsed_ms(), cpu_ms = machine_cpu_ms() - cpu_before;
  std::printf("%s, %u bytes, %u in a post: %.3f messages/s, CPU %.3f us each\n",
              name_of(settings.operation), settings.size, settings.chain, sent / took_ms * 1000,
              cpu_ms * 1000 / sent);
}

void rate(int argc, char **argv) {
  CommandLine line{"How many messages a second. Both sides need the same options."};
  PairOptions options{line};
  Settings settings;
  std::string operation = "write";
  line.add("--operation", operation, "what each message is [write]",
           {"write", "write-imm", "read"});
  line.add("--size", settings.size, "bytes of a message [64]", 1, 1 << 20);
  line.add("--chain", settings.chain, "requests in one call of ibv_post_send [1]", 1, 64);
  line.add("--messages", settings.messages, "that are measured [20000]", 1, 100'000'000);
  line.parse(argc, argv);
  settings.operation = operation_of(operation);
  const Port port = open_port(options);
  Exchange exchange(options);
  std::vector<std::byte> memory(settings.size);
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const unique_mr mr = reg_mr(pd.get(), memory.data(), memory.size(), access);
  const unique_cq cq = create_cq(port.context.get(), 2 * Flood::depth);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(),
                                    {.max_send_wr = Flood::depth,
                                     .max_recv_wr = Flood::depth,
                                     .max_send_sge = 1,
                                     .max_recv_sge = 1,
                                     .max_inline_data = 0});
  to_init(qp.get(), port, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  std::optional<Credits> credits; // before the peer can send
  if (settings.operation == Operation::write_imm)
    credits.emplace(qp.get(), Flood::depth);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));
  if (theirs.length != memory.size())
    throw Error("the peer's memory", "it has another --size");
  if (!options.is_server()) {
    ibv_sge whole = piece(mr.get(), mr->addr, settings.size);
    Flood flood(qp.get(), cq.get(), credits ? &*credits : nullptr, exchange,
                {.sg_list = &whole,
                 .num_sge = 1,
                 .opcode = opcode_of(settings.operation),
                 .wr = {.rdma = {.remote_addr = theirs.address, .rkey = theirs.rkey}}});
    measure(flood, settings);
    exchange.send_done();
  } else {
    if (credits)
      give_credits(cq.get(), qp.get(), *credits, Flood::depth, exchange);
    exchange.receive_done(std::chrono::hours(1));
  }
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, rate);
}

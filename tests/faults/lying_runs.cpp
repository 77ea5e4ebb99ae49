// SPDX-License-Identifier: MIT
// A peer of 21_group_send and of 22_credits that does one thing wrong: for test_runs.py.
#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <arpa/inet.h>

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

struct Message {
  uint32_t length, id;
  std::array<char, 56> text;
};

class Liar {
public:
  Liar(const Port &port, Exchange &exchange, const PairOptions &options, uint32_t slots,
       bool small_memory)
      : timeout_(options.timeout), out_(slots), in_(small_memory ? slots / 2 : slots),
        pd_(alloc_pd(port.context.get())), out_mr_(region(out_, 0)),
        in_mr_(region(in_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
        send_cq_(create_cq(port.context.get(), depth)),
        recv_cq_(create_cq(port.context.get(), depth + slots)),
        qp_(create_rc_qp(pd_.get(), send_cq_.get(), recv_cq_.get(),
                         {.max_send_wr = depth, .max_recv_wr = depth + slots, .max_send_sge = 1})) {
    to_init(qp_.get(), port, IBV_ACCESS_REMOTE_WRITE);
    for (uint32_t i = 0; i < depth + slots; ++i) // for answers that come one by one, to all slots
      post_recv(qp_.get(), {});
    theirs_ = connect(qp_.get(), port, exchange, options, share(in_mr_.get()));
  }

  void wait_for_run() {
    while (from_immediate(wait_for_completion(recv_cq_.get(), "a run", timeout_).imm_data).count ==
           0)
      ;
  }

  // In slot `slot`, and in as many behind it as there may be.
  void write(uint32_t slot, uint32_t id, const std::string &text, uint32_t length) {
    for (; slot < out_.size(); ++slot, ++id) {
      out_[slot] = {.length = htonl(length), .id = htonl(id), .text = {}};
      text.copy(out_[slot].text.data(), text.size());
    }
  }

  // The bytes of `sent`, and the immediate data say `said`.
  void send(Run sent, Run said, uint32_t bytes) {
    ibv_sge from = piece(out_mr_.get(), &out_[sent.first % out_.size()], bytes);
    const uint64_t there = theirs_.address + sent.first * sizeof(Message);
    post_send(qp_.get(), {.sg_list = &from,
                          .num_sge = bytes > 0 ? 1 : 0,
                          .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                          .send_flags = IBV_SEND_SIGNALED,
                          .imm_data = to_immediate(said),
                          .wr = {.rdma = {.remote_addr = there, .rkey = theirs_.rkey}}});
    wait_for_completion(send_cq_.get(), "a run", timeout_);
  }
  void send(Run run) { send(run, run, run.count * sizeof(Message)); }
  void send_plain() {
    post_send(qp_.get(), {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    wait_for_completion(send_cq_.get(), "a SEND", timeout_);
  }

  uint32_t slots() const { return static_cast<uint32_t>(out_.size()); }

private:
  unique_mr region(std::vector<Message> &slots, int access) {
    return reg_mr(pd_.get(), slots.data(), slots.size() * sizeof(Message), access);
  }

  static constexpr uint32_t depth = 256;
  const std::chrono::seconds timeout_;
  std::vector<Message> out_, in_;
  unique_pd pd_;
  unique_mr out_mr_, in_mr_;
  unique_cq send_cq_, recv_cq_;
  unique_qp qp_;
  RemoteMemory theirs_{};
};

const std::map<std::string, std::function<void(Liar &)>> lies{
    {"plain", [](Liar &liar) { liar.send_plain(); }},
    {"none",
     [](Liar &liar) {
       liar.send({0, 0}, {0, 0}, 0);
     }},
    {"second",
     [](Liar &liar) {
       liar.send({1, 1});
     }},
    {"twice",
     [](Liar &liar) {
       liar.send({0, 1});
       liar.send({0, 1});
     }},
    {"more",
     [](Liar &liar) {
       liar.send({0, 2}, {0, 3}, 2 * sizeof(Message));
     }},
    {"fewer",
     [](Liar &liar) {
       liar.send({0, 2}, {0, 1}, 2 * sizeof(Message));
     }},
    {"half",
     [](Liar &liar) {
       liar.send({0, 1}, {0, 1}, sizeof(Message) / 2);
     }},
    {"beyond",
     [](Liar &liar) {
       for (uint32_t first = 0; first + 16 < liar.slots(); first += 16)
         liar.send({first, 16});
       liar.send({liar.slots() - 16, 16}, {liar.slots() - 16, 17}, 16 * sizeof(Message));
     }},
    {"outside",
     [](Liar &liar) {
       liar.send({liar.slots(), 1}, {0, 1}, sizeof(Message));
     }},
    {"long",
     [](Liar &liar) {
       liar.write(0, 0, "", 57);
       liar.send({0, 1});
     }},
    {"longest",
     [](Liar &liar) {
       liar.write(0, 0, "", 0xffffffff);
       liar.send({0, 1});
     }},
    // As the answers to the first requests of the callers 0, 1, 2 and so on.
    {"stranger",
     [](Liar &liar) {
       liar.write(0, 0xffffff00, "request 1 of caller 0", 21);
       liar.send({0, 1});
     }},
    {"other-text",
     [](Liar &liar) {
       liar.write(0, 0, "request 2 of caller 0", 21);
       liar.send({0, 1});
     }},
    // Credits.
    {"too-many",
     [](Liar &liar) {
       liar.send({0, 0}, {100, 0}, 0);
     }},
    {"backwards",
     [](Liar &liar) {
       liar.send({0, 0}, {Run::first_limit - 1, 0}, 0);
     }},
    // No credit is waited for, and none is given. So the other side answers until its own slots are
    // full, and takes no more. At last more runs lie there than it has credited.
    {"impatient",
     [](Liar &liar) {
       for (uint32_t run = 0; run < 3 * liar.slots(); ++run)
         liar.send({run % liar.slots(), 1});
     }},
    // Anything. The seed is always the same.
    {"random",
     [](Liar &liar) {
       std::minstd_rand random(22);
       for (uint32_t i = 0; i < 1000; ++i) {
         const auto first = static_cast<uint32_t>(random() % liar.slots());
         const auto count = static_cast<uint32_t>(random() % 4);
         liar.write(first, static_cast<uint32_t>(random() % 200), "request 1 of caller 0",
                    static_cast<uint32_t>(random() % 64));
         liar.send({first % (liar.slots() - 4), count});
       }
     }},
    {"gone", [](Liar &) {}},
    {"memory", [](Liar &) {}},
};

void lying_runs(int argc, char **argv) {
  CommandLine line{"Talks to group_send or credits, and lies."};
  PairOptions options{line};
  std::string lie;
  uint32_t slots = 64;
  line.add("--lie", lie, "what is wrong");
  line.add("--slots", slots, "how many the honest side has [64]");
  line.parse(argc, argv);

  const Port port = open_port(options);
  Exchange exchange(options);
  Liar liar(port, exchange, options, slots, lie == "memory");
  liar.write(0, 0, "request 1 of caller 0", 21);
  if (options.is_server() && lie != "memory")
    liar.wait_for_run();
  lies.at(lie)(liar);
  if (lie != "gone")
    exchange.finish(); // when the other side has had enough
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_runs);
}

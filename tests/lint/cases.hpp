// SPDX-License-Identifier: MIT
// The programs made wrong on purpose share this: two connected queue pairs in one process.
//
// Each case is a function that does one thing wrong if `wrong`, and the same right if not. Its name
// is the name of the rule that finds it; a rule may have more cases, with a comma and a word
// behind. test_lint.py runs each twice under librdmalint.so. Its tests of other things have cases,
// too: "call-failed, reasons" and "completion, ...".
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <sys/types.h>

namespace cases {

using namespace rdmacommon;
using namespace std::chrono_literals;

using Case = std::function<void(const DeviceOptions &, bool wrong)>;

// All cases by name; each file adds its own.
std::map<std::string, Case> &all();

struct Add {
  Add(const char *name, Case run) { all()[name] = std::move(run); }
};

// The properties of a Pair. Each case changes those that it is about.
struct Shape {
  ibv_qp_cap cap{.max_send_wr = 4,
                 .max_recv_wr = 4,
                 .max_send_sge = 2,
                 .max_recv_sge = 2,
                 .max_inline_data = 32};
  int cqe = 16;
  unsigned access = IBV_ACCESS_LOCAL_WRITE;
  unsigned qp_access = 0;
  bool with_channel = false;
  bool connected = true;
  // Last changes to what is set for RTR and RTS; `first` for a.
  std::function<void(bool first, ibv_qp_attr &)> to_rtr = {}, to_rts = {};
};

constexpr std::size_t page = 4096;

// a and b, each the peer of the other; a sends and b receives. The buffer has two pages.
struct Pair {
  explicit Pair(const DeviceOptions &options, const Shape &shape = {});

  void connect(const Shape &shape);
  ibv_sge at(std::size_t offset, std::uint32_t length) const {
    return piece(mr.get(), buffer.get() + offset, length);
  }
  void receive(std::size_t offset = page, std::uint32_t length = 64, ibv_qp *qp = nullptr) const;
  void send(unsigned flags = IBV_SEND_SIGNALED, std::uint32_t length = 64) const;
  void write(std::uint32_t rkey, std::uint64_t address, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE,
             ibv_qp *qp = nullptr) const;

  Port port;
  unique_pd pd;
  std::unique_ptr<char, decltype(&std::free)> buffer;
  unique_mr mr;
  unique_comp_channel channel;
  unique_cq sent, received; // a completes to `sent`, b to `received`
  unique_qp a, b;
};

// A datagram queue pair for one request each way.
constexpr std::uint32_t our_qkey = 0x1234;
unique_qp open_ud_qp(const Pair &pair, ibv_cq *cq);

// One for the ibv_wr_*() functions, of the same kind, in RESET.
unique_qp create_extended_qp(ibv_pd *pd, ibv_cq *cq);

// Returns true if this thread of the process sleeps, in a call of the kernel's.
bool sleeps(pid_t thread);

// The next completion, whatever its status.
ibv_wc next(ibv_cq *cq);
// The next one, which has to have worked.
void wait(ibv_cq *cq);

} // namespace cases

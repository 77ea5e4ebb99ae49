// SPDX-License-Identifier: MIT
// 15_fork: memory, and a queue pair that is its own peer: what a process has before it forks.
#pragma once

#include "child.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string>

enum class AtFork { copied = MAP_PRIVATE, shared = MAP_SHARED };

// Whole pages, since fork() copies or shares nothing smaller.
template <typename What> class Mapped {
public:
  explicit Mapped(AtFork kind)
      : at_(mmap(nullptr, sizeof(What), PROT_READ | PROT_WRITE,
                 MAP_ANONYMOUS | static_cast<int>(kind), -1, 0)) {
    rdmacommon::check_errno(at_ == MAP_FAILED ? -1 : 0, "mmap");
  }
  ~Mapped() { munmap(at_, sizeof(What)); }
  Mapped(const Mapped &) = delete;
  Mapped &operator=(const Mapped &) = delete;
  What *operator->() const { return static_cast<What *>(at_); } // zeros, at first
  What &operator*() const { return *static_cast<What *>(at_); }

private:
  void *at_;
};

constexpr size_t text_size = 64;
using Text = std::array<char, text_size>;

inline void put(Text &to, const std::string &text) {
  std::snprintf(to.data(), to.size(), "%s", text.c_str());
}
inline std::string get(const Text &from) {
  return {from.data(), strnlen(from.data(), from.size())};
}

// The result of a case, in short and in words.
struct Outcome {
  bool works;
  std::string seen;
};

struct Buffers {
  Text outgoing, incoming;
};

// Two texts that are registered, and a queue pair that is its own peer.
struct Resources {
  Resources(const rdmacommon::DeviceOptions &options, Buffers &memory)
      : buffers(memory), port(rdmacommon::open_port(options)),
        pd(rdmacommon::alloc_pd(port.context.get())),
        mr(rdmacommon::reg_mr(pd.get(), &memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)),
        cq(rdmacommon::create_cq(port.context.get(), 8)),
        qp(rdmacommon::create_rc_qp(
            pd.get(), cq.get(),
            {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1})) {
    rdmacommon::connect_to_itself(qp.get(), port);
  }

  // @return the next completion, or nothing if there is none in time
  std::optional<ibv_wc> next(Limit limit) const {
    const auto done = rdmacommon::poll_within(cq.get(), limit);
    if (done)
      rdmacommon::check_wc(*done, "a request");
    return done;
  }
  void wait_for_message(Limit limit) const {
    if (!next(limit))
      throw rdmacommon::Error("a message", "it has not come in time");
  }

  void receive() const {
    ibv_sge room = rdmacommon::piece(mr.get(), &buffers.incoming, text_size);
    rdmacommon::post_recv(qp.get(), {.wr_id = 1, .sg_list = &room, .num_sge = 1});
  }
  // @return what ibv_post_send says. The SEND is unsignaled, so what completes is the receive.
  int try_send(const std::string &text) const {
    put(buffers.outgoing, text);
    ibv_sge what = rdmacommon::piece(mr.get(), &buffers.outgoing, text_size);
    ibv_send_wr request{.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND};
    ibv_send_wr *refused = nullptr;
    return ibv_post_send(qp.get(), &request, &refused);
  }
  void send(const std::string &text) const {
    rdmacommon::check_rc(try_send(text), "ibv_post_send");
  }

  Buffers &buffers;
  rdmacommon::Port port;
  rdmacommon::unique_pd pd;
  rdmacommon::unique_mr mr;
  rdmacommon::unique_cq cq;
  rdmacommon::unique_qp qp;
};

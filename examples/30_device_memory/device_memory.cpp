// SPDX-License-Identifier: MIT
// 30_device_memory: memory on the NIC's own chip: copied into, sent from, read and written by
// offset; and a table of locks in it, which processes take and give back by compare-and-swap. The
// server fences off a holder that dies.
//
// Lesson:  lessons/30_device_memory.md
// Needs:   an RDMA device with atomics on both sides; where the server's has no memory of its own,
//          host memory stands in for it, and --require-device-memory refuses that
// Run:     ./lab run 30_device_memory
// By hand: device_memory                  the server, whose NIC's memory it is
//          device_memory --host ADDRESS   the client, which starts the processes

#include "directory.hpp"
#include "lock_client.hpp"
#include "on_chip.hpp"
#include "remote_words.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <endian.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace rdmacommon;

namespace {

struct Client {
  uint32_t number; // in the locks that it has; nobody gets it again
  unique_qp qp;
  std::optional<Exchange> exchange; // none any more: it has finished, or is gone
};

Port open_with_atomics(const DeviceOptions &options) {
  Port port = open_port(options);
  require_atomics(port.context.get()); // before a region asks for them
  return port;
}

class LockServer {
public:
  LockServer(const PairOptions &options, const Settings &settings)
      : options_(options), settings_(settings), port_(open_with_atomics(options)),
        pd_(alloc_pd(port_.context.get())),
        chip_(port_, pd_.get(), settings.size, settings.required),
        locks_((chip_.size() - locks_begin) / lock_size), counters_(settings.counters),
        mr_(reg_mr(pd_.get(), counters_.data(), counters_.size() * sizeof(uint64_t),
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)),
        cq_(create_cq(port_.context.get(), 1)),
        old_mr_(reg_mr(pd_.get(), &old_, sizeof old_, IBV_ACCESS_LOCAL_WRITE)),
        own_cq_(create_cq(port_.context.get(), 1)),
        own_qp_(create_rc_qp(pd_.get(), own_cq_.get(), {.max_send_wr = 1, .max_send_sge = 1})),
        words_(own_qp_.get(), own_cq_.get(), old_mr_.get(), old_, chip_.share(), options.timeout) {
    connect_to_itself(own_qp_.get(), port_, IBV_ACCESS_REMOTE_ATOMIC);
    if (locks_ < settings.counters)
      throw Error("--counters", "there are " + std::to_string(locks_) + " locks for them");
  }

  void run() {
    char text[text_size] = "copied in by the server's CPU", back[text_size];
    chip_.copy_in(text_begin, text, sizeof text);
    chip_.copy_out(back, text_begin, sizeof back);
    std::printf("copied in %zu bytes and out again: %s\n", text_size,
                std::memcmp(text, back, sizeof back) == 0 ? "the same" : "NOT the same");

    Listener listener(options_);
    admit(listener);
    clients_[0].exchange->receive_done(options_.wait);
    std::printf("what is on the chip:\n");
    chip_.dump(text_begin, 2 * text_size);
    while (clients_.size() < 1 + settings_.deaths() + settings_.processes)
      admit(listener);
    if (settings_.deaths() > 0) {
      std::printf("locks 0 and 1:\n");
      chip_.dump(locks_begin, 2 * lock_size);
    }
    watch();
    clients_[0].exchange->receive_done(options_.wait);
    check();
  }

private:
  // The next client gets a queue pair of its own, and the directory. One that does not connect
  // properly is turned away, unless it is the first, for which all others wait.
  void admit(Listener &listener) {
    for (;;) {
      const uint32_t number = ++numbers_;
      Exchange exchange = listener.accept();
      try {
        constexpr unsigned remote =
            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        unique_qp qp = create_rc_qp(pd_.get(), cq_.get(), {.max_send_wr = 1, .max_send_sge = 1});
        to_init(qp.get(), port_, remote);
        connect(qp.get(), port_, exchange, options_, chip_.share());
        send_directory(qp.get(), number);
        clients_.push_back({number, std::move(qp), std::move(exchange)});
        return;
      } catch (const Error &error) {
        if (clients_.empty())
          throw;
        std::printf("turned process %u away: %s\n", number, error.what());
        free_locks(number); // its queue pair is gone
      }
    }
  }

  void send_directory(ibv_qp *qp, uint32_t number) {
    const Directory directory{.version = htobe32(1),
                              .you = htobe32(number),
                              .locks = htobe32(static_cast<uint32_t>(locks_)),
                              .counters = htobe32(settings_.counters),
                              .counters_address =
                                  htobe64(reinterpret_cast<uintptr_t>(counters_.data())),
                              .counters_rkey = htobe32(mr_->rkey),
                              .reserved = 0};
    // [send-directory]
    chip_.copy_in(directory_begin, &directory, sizeof directory);
    ibv_sge piece = chip_.piece(directory_begin, sizeof directory);
    post_send(
        qp,
        {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
    wait_for_completion(cq_.get(), "the SEND of the directory", options_.timeout);
    // [send-directory]
  }

  // Until all clients but the first have finished, or are gone.
  void watch() {
    for (;;) {
      std::vector<pollfd> fds;
      for (size_t i = 1; i < clients_.size(); ++i)
        if (clients_[i].exchange)
          fds.push_back({.fd = clients_[i].exchange->fd(), .events = POLLIN});
      if (fds.empty())
        return;
      const auto limit = std::chrono::milliseconds(options_.wait).count();
      if (check_errno(poll(fds.data(), fds.size(), static_cast<int>(limit)), "poll") == 0)
        throw Error("the clients", "none has finished in time");
      // [watch]
      for (Client &client : clients_)
        if (&client != &clients_[0] && client.exchange && client.exchange->can_receive())
          fence(client, !has_finished(client));
      // [watch]
    }
  }

  // Takes the last word of a client's. False if the client has closed the connection, or says
  // something else than "done".
  static bool has_finished(Client &client) {
    Exchange exchange = std::move(*client.exchange);
    client.exchange.reset();
    try {
      exchange.receive_done();
      return true;
    } catch (const Error &) {
      return false;
    }
  }

  // First its queue pair goes: after that, no request of this client reaches our memory any more.
  // Only then may another client have its locks.
  // [fence]
  void fence(Client &client, bool is_gone) {
    client.qp.reset();
    if (is_gone)
      std::printf("process %u is gone; its queue pair is closed\n", client.number);
    free_locks(client.number);
  }

  // Our CPU must not write to a lock: another client's compare-and-swap may just have read it. So
  // our NIC does it, by an atomic of our own.
  void free_locks(uint32_t number) {
    std::vector<uint64_t> table(locks_);
    chip_.copy_out(table.data(), locks_begin, locks_ * lock_size);
    for (size_t lock = 0; lock < locks_; ++lock)
      if (table[lock] == number && words_.compare_swap(lock_at(lock), number, 0) == number)
        std::printf("lock %zu, which it had, is free\n", lock);
  }
  // [fence]

  void check() {
    std::vector<uint64_t> table(locks_);
    chip_.copy_out(table.data(), locks_begin, locks_ * lock_size);
    const auto taken = std::count_if(table.begin(), table.end(), [](uint64_t it) { return it; });
    std::printf("%zu locks, %td of them taken\n", locks_, taken);
    uint64_t sum = 0;
    for (const uint64_t counter : counters_)
      sum += be64toh(counter);
    if (sum > settings_.sum())
      throw Error("the counters", "it is too high: another process has counted");
    if (sum < settings_.sum())
      throw Error("the counters", std::to_string(settings_.sum() - sum) + " increments were lost");
    std::printf("the sum of %zu counters is %ju\n", counters_.size(), uintmax_t{sum});
  }

  const PairOptions &options_;
  const Settings &settings_;
  Port port_;
  unique_pd pd_;
  OnChip chip_;
  size_t locks_;
  std::vector<uint64_t> counters_; // in network byte order, written by the clients
  unique_mr mr_;
  unique_cq cq_;
  // For atomics on our own chip: a queue pair that is connected to itself.
  uint64_t old_ = 0;
  unique_mr old_mr_;
  unique_cq own_cq_;
  unique_qp own_qp_;
  RemoteWords words_;
  std::vector<Client> clients_;
  uint32_t numbers_ = 0;
};

void device_memory(int argc, char **argv) {
  CommandLine line{"Memory on the NIC's chip, and locks in it."};
  PairOptions options{line};
  Settings settings;
  line.add("--size", settings.size, "server: bytes on the chip [what it has, 64 KiB at most]",
           locks_begin + lock_size, 1 << 24);
  line.add("--require-device-memory", settings.required, "server: host memory will not do");
  line.add("--counters", settings.counters, "server: how many, each with a lock [8]", 2, 4096);
  line.add("--processes", settings.processes, "that count, on both sides the same [4]", 1, 64);
  line.add("--rounds", settings.rounds, "of each of them, on both sides the same [25]", 1, 100'000);
  line.add("--no-deaths", settings.no_deaths, "nobody dies with a lock; on both sides the same");
  line.parse(argc, argv);
  if (options.is_server())
    LockServer(options, settings).run();
  else
    client(options, settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, device_memory);
}

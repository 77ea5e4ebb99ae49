// SPDX-License-Identifier: MIT
// The client of 30_device_memory: processes, each connected to the server, that take locks on the
// server's chip.
#pragma once

#include "directory.hpp"
#include "remote_words.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <endian.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <string>

// The options of the command line.
struct Settings {
  size_t size = 0;
  uint32_t counters = 8, processes = 4, rounds = 25;
  bool required = false, no_deaths = false;

  uint32_t deaths() const { return no_deaths ? 0 : 2; }
  uint64_t sum() const { return uint64_t{processes} * rounds; }
};

class LockClient {
public:
  explicit LockClient(const rdmacommon::PairOptions &options)
      : options_(options), port_(rdmacommon::open_port(options)) {
    pd_ = rdmacommon::alloc_pd(port_.context.get());
    constexpr int access = IBV_ACCESS_LOCAL_WRITE;
    mr_ = rdmacommon::reg_mr(pd_.get(), &mine_, sizeof mine_, access);
    cq_ = rdmacommon::create_cq(port_.context.get(), 3);
    qp_ = rdmacommon::create_rc_qp(
        pd_.get(), cq_.get(),
        {.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1});
    rdmacommon::to_init(qp_.get(), port_);
    ibv_sge sge = rdmacommon::piece(mr_.get(), &mine_.directory, sizeof mine_.directory);
    rdmacommon::post_recv(qp_.get(), {.sg_list = &sge, .num_sge = 1});
    exchange_.emplace(options, rdmacommon::Where::here());
    const rdmacommon::RemoteMemory chip =
        rdmacommon::connect(qp_.get(), port_, *exchange_, options, {});
    const ibv_wc got = rdmacommon::wait_for_completion(cq_.get(), "the directory", options.timeout);
    known_ = from_directory(mine_.directory, got.byte_len, chip);
    words_.emplace(qp_.get(), cq_.get(), mr_.get(), mine_.result, chip, options.timeout);
  }

  const Known &known() const { return known_; }
  rdmacommon::Exchange &exchange() { return *exchange_; }

  // A text on the chip, by its offset: a READ into text(), or a WRITE from it.
  void access(ibv_wr_opcode opcode, size_t offset) {
    ibv_sge here = rdmacommon::piece(mr_.get(), mine_.text, text_size);
    rdmacommon::post_send(qp_.get(),
                          {.sg_list = &here,
                           .num_sge = 1,
                           .opcode = opcode,
                           .send_flags = IBV_SEND_SIGNALED,
                           .wr = {.rdma = {.remote_addr = offset, .rkey = known_.chip.rkey}}});
    rdmacommon::wait_for_completion(cq_.get(), "the access to the chip", options_.timeout);
  }

  // [acquire]
  // Takes the lock. If several clients find it free, one gets it. The others try again: the word is
  // on the NIC's chip, so that a try costs the server no more than the packet does.
  void acquire(size_t lock) {
    const auto deadline = std::chrono::steady_clock::now() + options_.wait;
    while (words_->compare_swap(lock_at(lock), 0, known_.me) != 0)
      if (std::chrono::steady_clock::now() > deadline)
        throw rdmacommon::Error("lock " + std::to_string(lock), "nobody has given it back");
  }
  // [acquire]

  // Plain READ and WRITE may change a counter: only the holder of its lock uses it.
  uint64_t load(size_t counter) {
    ibv_sge here = rdmacommon::piece(mr_.get(), &mine_.value, sizeof mine_.value);
    rdmacommon::post_send(qp_.get(), {.sg_list = &here,
                                      .num_sge = 1,
                                      .opcode = IBV_WR_RDMA_READ,
                                      .send_flags = IBV_SEND_SIGNALED,
                                      .wr = {.rdma = counter_at(counter)}});
    rdmacommon::wait_for_completion(cq_.get(), "the READ of a counter", options_.timeout);
    return be64toh(mine_.value);
  }

  // The new value, and the lock from our number to 0, in one post: they arrive in this order.
  // Returns the first completion, unchecked.
  ibv_wc store_and_release(size_t counter, uint64_t value) {
    // [store]
    mine_.value = htobe64(value);
    ibv_sge old = rdmacommon::piece(mr_.get(), &mine_.result, sizeof mine_.result);
    ibv_send_wr release{.sg_list = &old,
                        .num_sge = 1,
                        .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
                        .send_flags = IBV_SEND_SIGNALED,
                        .wr = {.atomic = {.remote_addr = lock_at(counter),
                                          .compare_add = known_.me,
                                          .swap = 0,
                                          .rkey = known_.chip.rkey}}};
    ibv_sge here = rdmacommon::piece(mr_.get(), &mine_.value, sizeof mine_.value);
    rdmacommon::post_send(qp_.get(), {.next = &release,
                                      .sg_list = &here,
                                      .num_sge = 1,
                                      .opcode = IBV_WR_RDMA_WRITE,
                                      .wr = {.rdma = counter_at(counter)}});
    // [store]
    const auto done = rdmacommon::poll_within(cq_.get(), options_.timeout);
    if (!done)
      throw rdmacommon::Error("the WRITE of a counter", "no completion in time");
    return *done;
  }

  // Makes the server take this process for dead. It is not, and its queue pair is as it was.
  void lose_exchange() { exchange_.reset(); }

  char *text() { return mine_.text; } // text_size bytes

private:
  decltype(ibv_send_wr::wr.rdma) counter_at(size_t counter) const {
    return {.remote_addr = known_.memory.address + counter * sizeof(uint64_t),
            .rkey = known_.memory.rkey};
  }

  const rdmacommon::PairOptions &options_;
  struct {
    Directory directory;
    uint64_t result, value;
    char text[text_size];
  } mine_{};
  Known known_{};
  rdmacommon::Port port_;
  rdmacommon::unique_pd pd_;
  rdmacommon::unique_mr mr_;
  rdmacommon::unique_cq cq_;
  rdmacommon::unique_qp qp_;
  std::optional<rdmacommon::Exchange> exchange_;
  std::optional<RemoteWords> words_;
};

// ---- what the processes do

// A process that waits for its parent's word ends with it, so this is no limit that it could reach.
constexpr std::chrono::hours a_day{24};

// Reads and writes on the chip, and waits until the others have finished.
inline void visitor(const rdmacommon::PairOptions &options, const rdmacommon::Link &parent) {
  LockClient client(options);
  client.access(IBV_WR_RDMA_READ, text_begin);
  std::printf("READ at offset %zu: \"%.*s\"\n", text_begin, int{text_size}, client.text());
  std::memset(client.text(), 0, text_size);
  std::snprintf(client.text(), text_size, "written by process %u's NIC", client.known().me);
  client.access(IBV_WR_RDMA_WRITE, answer_begin);
  std::printf("WRITE at offset %zu: \"%s\"\n", answer_begin, client.text());
  client.access(IBV_WR_RDMA_READ, answer_begin); // its answer comes after the WRITE (lesson 04)
  client.exchange().send_done();
  parent.send("seen");
  parent.receive(a_day);
  client.exchange().send_done();
}

inline void worker(const rdmacommon::PairOptions &options, uint32_t rounds) {
  LockClient client(options);
  // [worker]
  for (uint32_t i = 0; i < rounds; ++i) {
    const size_t counter = (client.known().me + i) % client.known().counters;
    client.acquire(counter);
    const uint64_t value = client.load(counter);
    rdmacommon::check_wc(client.store_and_release(counter, value + 1), "the WRITE of a counter");
  }
  // [worker]
  // Its answer comes after all WRITEs are in the server's memory (lesson 04).
  client.load(client.known().me % client.known().counters);
  client.exchange().send_done();
}

// Takes a lock, and sleeps in the middle of its work.
inline void holder(const rdmacommon::PairOptions &options, const rdmacommon::Link &parent,
                   size_t lock, bool loses_exchange) {
  LockClient client(options);
  client.acquire(lock);
  const uint64_t value = client.load(lock);
  std::printf("process %u has lock %zu\n", client.known().me, lock);
  if (loses_exchange)
    client.lose_exchange();
  parent.send("holding");
  parent.receive(a_day);
  const ibv_wc done = client.store_and_release(lock, value + 1);
  std::printf("process %u goes on; its WRITE: %s\n", client.known().me,
              ibv_wc_status_str(done.status));
}

inline void wait_for(rdmacommon::Child &child, std::chrono::seconds limit) {
  if (child.wait(limit) != 0)
    throw rdmacommon::Error("a process", "it has failed");
}

inline void client(const rdmacommon::PairOptions &options, const Settings &settings) {
  // The device is closed again before the first fork.
  rdmacommon::require_atomics(rdmacommon::open_port(options).context.get());
  rdmacommon::Child first([&](const rdmacommon::Link &parent) { visitor(options, parent); });
  first.link().receive(options.wait);
  std::optional<rdmacommon::Child> lost;
  if (settings.deaths() > 0) {
    rdmacommon::Child killed(
        [&](const rdmacommon::Link &parent) { holder(options, parent, 0, false); });
    killed.link().receive(options.wait);
    killed.kill();
    std::printf("it is dead\n");
    lost.emplace([&](const rdmacommon::Link &parent) { holder(options, parent, 1, true); });
    lost->link().receive(options.wait);
    std::printf("it has lost its connection to the server, and sleeps\n");
  }
  std::deque<rdmacommon::Child> workers;
  for (uint32_t i = 0; i < settings.processes; ++i)
    workers.emplace_back([&](const rdmacommon::Link &) { worker(options, settings.rounds); });
  for (rdmacommon::Child &child : workers)
    wait_for(child, options.wait);
  std::printf("%u processes have counted %u times each\n", settings.processes, settings.rounds);
  if (lost) {
    lost->link().send("go on");
    wait_for(*lost, options.wait);
  }
  first.link().send("the others have finished");
  wait_for(first, options.wait);
}

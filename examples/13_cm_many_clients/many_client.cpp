// SPDX-License-Identifier: MIT
// 13_cm_many_clients, the clients: many processes, each with a connection of its own, which comes
// back if it is lost.
//
// Lesson:  lessons/13_cm_many_clients.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 13_cm_many_clients
// By hand: many_server --clients 0         the server, until SIGTERM
//          many_client --host ADDRESS      ADDRESS: of the server's RDMA device

#include "children.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

struct Settings {
  uint32_t clients = 8, times = 1, rounds = 4, size = 1024, attempts = 10;
  int rude = -1; // -1: one for every eight clients
  bool verbose = false;
};

// An error that another try does not fix.
class Final : public Error {
public:
  using Error::Error;
};

// The time to wait after a failure: twice as long each time, up to a limit. The time is random,
// since clients that lost the server together would otherwise come back together.
class Backoff {
public:
  milliseconds next() {
    const milliseconds longest = std::min(first_ * (1 << std::min(failures_++, 10)), limit_);
    return milliseconds(
        std::uniform_int_distribution<int64_t>(longest.count() / 2, longest.count())(random_));
  }
  void reset() { failures_ = 0; }

private:
  static constexpr milliseconds first_{50}, limit_{2000};
  int failures_ = 0;
  std::mt19937 random_{std::random_device{}()};
};

class Connection {
public:
  // @param rude tells the server nonsense
  explicit Connection(const CmOptions &options, bool rude = false) : timeout_(options.timeout) {
    cm_resolve(id_.get(), channel_.get(), options);
    create_resources();
    connect_to_server();
    Description mine = describe(mr_.get());
    if (rude)
      mine.version = 0;
    ibv_sge out{.addr = reinterpret_cast<uintptr_t>(&mine), .length = sizeof mine, .lkey = 0};
    post_send(
        id_->qp,
        {.sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE});
    if (!rude)
      server_ = parse_description(memory_->theirs, wait("the server's description").byte_len);
  }

  // WRITEs a pattern that nobody else writes, READs it back, compares.
  void write_and_read(uint32_t seed, uint32_t size) {
    if (size > server_.length)
      throw Error("the server's memory", "it is too small");
    std::minstd_rand pattern(seed);
    std::generate_n(memory_->out.begin(), size, [&] { return static_cast<char>(pattern()); });
    transfer(IBV_WR_RDMA_WRITE, piece(mr_.get(), memory_->out.data(), size));
    wait("the WRITE");
    transfer(IBV_WR_RDMA_READ, piece(mr_.get(), memory_->in.data(), size));
    wait("the READ");
    if (std::memcmp(memory_->out.data(), memory_->in.data(), size) != 0)
      throw Final("the comparison", "what was READ is not what was written");
  }

  void disconnect() {
    check_errno(rdma_disconnect(id_.get()), "rdma_disconnect");
    wait_for_cm_event(channel_.get(), RDMA_CM_EVENT_DISCONNECTED, timeout_);
  }

  // The server ends the connection: REJECTED instead of DISCONNECTED if it has not seen it
  // established.
  void wait_for_disconnect() {
    next_cm_event(channel_.get(), RDMA_CM_EVENT_DISCONNECTED, timeout_);
  }

private:
  void create_resources() {
    pd_ = alloc_pd(id_->verbs);
    mr_ = reg_mr(pd_.get(), memory_.get(), sizeof *memory_, access_for_reads(id_->verbs));
    completions_ = create_comp_channel(id_->verbs);
    cq_ = create_cq(id_->verbs, 3, completions_.get());
    qp_ = create_cm_qp(id_.get(), pd_.get(), cq_.get(),
                       {.max_send_wr = 2,
                        .max_recv_wr = 1,
                        .max_send_sge = 1,
                        .max_recv_sge = 1,
                        .max_inline_data = sizeof(Description)});
    ibv_sge into = piece(mr_.get(), &memory_->theirs, sizeof memory_->theirs);
    post_recv(id_->qp, {.sg_list = &into, .num_sge = 1});
  }

  [[noreturn]] static void reject(Refusal why) {
    if (why == Refusal::version)
      throw Final("the server rejects", words_for(why));
    throw Error("the server rejects", words_for(why));
  }

  void connect_to_server() {
    const Greeting hello = greeting();
    rdma_conn_param param{.private_data = &hello,
                          .private_data_len = sizeof hello,
                          .initiator_depth = 1,
                          .retry_count = 6,
                          .rnr_retry_count = 6};
    check_errno(rdma_connect(id_.get(), &param), "rdma_connect");
    const unique_cm_event answer =
        next_cm_event(channel_.get(), RDMA_CM_EVENT_ESTABLISHED, timeout_);
    const auto told = greeting_in(answer->param.conn);
    if (answer->event == RDMA_CM_EVENT_REJECTED && told)
      reject(static_cast<Refusal>(told->refusal));
    check_cm_event(*answer, RDMA_CM_EVENT_ESTABLISHED);
    if (!told || told->version != protocol_version)
      reject(Refusal::version);
  }

  void transfer(ibv_wr_opcode opcode, ibv_sge here) {
    post_send(id_->qp, {.sg_list = &here,
                        .num_sge = 1,
                        .opcode = opcode,
                        .send_flags = IBV_SEND_SIGNALED,
                        .wr = {.rdma = {.remote_addr = server_.address, .rkey = server_.rkey}}});
  }

  // Asleep, since there are many of us, until the next completion. The server may end the
  // connection meanwhile.
  ibv_wc wait(const char *what) {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    ibv_wc done{};
    while (true) {
      check_rc(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq"); // arm, then poll
      if (poll_batch(cq_.get(), {&done, 1}) > 0)
        break;
      std::array<pollfd, 2> either{{{completions_->fd, POLLIN, 0}, {channel_->fd, POLLIN, 0}}};
      const auto left =
          std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
      const int ready =
          poll(either.data(), either.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
      if (ready == 0)
        throw Error(what, "no completion in time");
      if (const unique_cm_event event = take_cm_event(channel_.get()))
        throw Error(what, std::string("the server has ended it: ") + name_of(event->event));
      while (take_event(completions_.get()) != nullptr)
        ;
    }
    check_wc(done, what);
    return done;
  }

  struct Memory {
    std::array<char, 65536> out, in;
    Description theirs;
  };
  const std::chrono::seconds timeout_;
  RemoteMemory server_{};
  unique_event_channel channel_ = create_event_channel();
  unique_cm_id id_ = create_cm_id(channel_.get());
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  unique_pd pd_;
  unique_mr mr_;
  unique_comp_channel completions_;
  unique_cq cq_;
  unique_cm_qp qp_;
};

// One client: does all its rounds, over as many connections as it needs. It calls `ready` when it
// is connected.
template <typename Ready>
void run_client(const CmOptions &options, const Settings &settings, uint32_t me, Ready ready) {
  Backoff backoff;
  uint32_t round = 0;
  // [client]
  for (uint32_t attempt = 1;; ++attempt) {
    try {
      Connection connection(options);
      ready();
      for (; round < settings.rounds; ++round) {
        connection.write_and_read(me * 1'000'003 + round + 1, settings.size);
        attempt = 0; // a new row of failures can begin
        backoff.reset();
      }
      connection.disconnect();
      return;
    } catch (const Final &) {
      throw;
    } catch (const Error &error) {
      if (attempt >= settings.attempts)
        throw;
      const milliseconds pause = backoff.next();
      if (settings.verbose)
        std::printf("client %u, after %u rounds: %s; again in %d ms\n", me, round, error.what(),
                    static_cast<int>(pause.count()));
      std::this_thread::sleep_for(pause); // no event reports that the server is back
    }
  }
  // [client]
}

void many_client(int argc, char **argv) {
  CommandLine line{"Many clients at once, each in a process of its own."};
  CmOptions options{line, "name or address of the server [localhost]"};
  Settings settings;
  line.add("--clients", settings.clients, "how many at once [8]", 1, 4096);
  line.add("--rude", settings.rude, "clients that first send a wrong message [one for every 8]", 0,
           4096);
  line.add("--times", settings.times, "how often each comes [1]", 1, 1'000'000);
  line.add("--rounds", settings.rounds, "how often it WRITEs and READs each time [4]", 0,
           1'000'000'000);
  line.add("--size", settings.size, "bytes at a time [1024]", 1, 65536);
  line.add("--attempts", settings.attempts, "how often to try in a row [10]", 1, 1000);
  line.add("--verbose", settings.verbose, "say when a client comes again, and why");
  line.parse(argc, argv);
  if (options.host.empty())
    options.host = "localhost";

  Gate gate;
  std::vector<pid_t> rude, clients;
  if (settings.rude < 0)
    settings.rude = static_cast<int>(settings.clients / 8);
  for (int i = 0; i < settings.rude; ++i)
    rude.push_back(start(gate, [&] { Connection(options, true).wait_for_disconnect(); }));
  bool good = wait_for(rude);
  for (uint32_t me = 0; me < settings.clients; ++me)
    clients.push_back(start(gate, [&] {
      bool first = true;
      for (uint32_t time = 0; time < settings.times; ++time)
        run_client(options, settings, me, [&] {
          if (std::exchange(first, false))
            gate.pass();
        });
    }));
  gate.open_when(settings.clients, options.wait);
  good = wait_for(clients) && good;
  if (!good)
    throw Error("the clients", "not all of them have succeeded");
  std::printf(
      "%u clients, each %u times %u rounds of %u bytes: what was READ is what was written\n",
      settings.clients, settings.times, settings.rounds, settings.size);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, many_client);
}

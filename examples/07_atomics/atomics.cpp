// SPDX-License-Identifier: MIT
// 07_atomics: many processes change the same eight bytes of another host's memory, and nothing is
// lost: a counter by fetch-and-add, and a lock by compare-and-swap that survives the death of its
// holder.
//
// Lesson:  lessons/07_atomics.md
// Needs:   an RDMA device with atomics on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 07_atomics
// By hand: atomics                  the server, whose memory it is
//          atomics --host ADDRESS   the client, which starts the processes

#include "words.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

struct Settings {
  uint32_t processes = 4, increments = 1000, locked = 100, lease_ms = 500;
};

// [server]
void server(const PairOptions &options, const Settings &settings) {
  const Port port = open_port(options);
  require_atomics(port.context.get());
  Words words{};
  const unique_pd pd = alloc_pd(port.context.get());
  constexpr unsigned remote =
      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &words, sizeof words, IBV_ACCESS_LOCAL_WRITE | remote);
  const unique_cq cq = create_cq(port.context.get(), 1);

  Listener listener(options);
  std::vector<unique_qp> qps; // one for each client process; all reach the same words
  std::vector<Exchange> exchanges;
  const uint32_t holders = settings.locked > 0 ? 2 : 0;
  for (uint32_t i = 0; i < holders + settings.processes; ++i) {
    qps.push_back(create_rc_qp(pd.get(), cq.get(), {}));
    to_init(qps.back().get(), port, remote);
    exchanges.push_back(listener.accept());
    connect(qps.back().get(), port, exchanges.back(), options, share(mr.get()));
  }
  // The kernel closes the connection of a process that ends, also of a killed one. The hour is for
  // a client's host that has lost its power: it closes nothing.
  uint32_t gone = 0;
  for (Exchange &exchange : exchanges)
    try {
      exchange.receive_done(std::chrono::hours(1));
    } catch (const Error &) { // it was killed; the words that it has changed stay changed
      ++gone;
    }

  std::printf("%u processes have gone without a word\n", gone);
  const uint64_t counted = uint64_t{settings.processes} * settings.increments;
  if (words.counter > counted)
    throw Error("the counter", "it is too high: another process has counted");
  if (words.counter < counted)
    throw Error("the counter", std::to_string(counted - words.counter) + " increments were lost");
  std::printf("the counter is %" PRIu64 "\n", words.counter);
  if (words.takeovers < holders)
    throw Error("the lock", "no process took it over from the dead one");
  const uint64_t locked = uint64_t{settings.processes} * settings.locked;
  if (lower(words.value) != locked)
    throw Error("the value",
                "it is " + std::to_string(lower(words.value)) + ", not " + std::to_string(locked));
  std::printf("the value under the lock is %" PRIu64 "\n", lower(words.value));
}
// [server]

// ---- the clients' processes

constexpr size_t counter = offsetof(Words, counter), lock = offsetof(Words, lock),
                 value = offsetof(Words, value), takeovers = offsetof(Words, takeovers);

// [acquire]
// Returns which holder of the lock this is. A holder that keeps it longer than a lease counts as
// dead.
uint64_t acquire(Remote &remote, uint64_t me, std::chrono::milliseconds lease) {
  using Clock = std::chrono::steady_clock;
  uint64_t seen = remote.fetch_add(lock, 0);
  for (Clock::time_point since = Clock::now();;) {
    const bool is_free = lower(seen) == 0, is_stale = Clock::now() - since > lease;
    uint64_t found;
    if (is_free || is_stale) {
      found = remote.compare_swap(lock, seen, word(upper(seen) + 1, me));
      if (found == seen) {
        if (!is_free)
          remote.fetch_add(takeovers, 1);
        return upper(seen) + 1;
      }
    } else {
      found = remote.fetch_add(lock, 0); // an atomic read
    }
    if (found != seen)
      since = Clock::now(); // somebody is alive
    seen = found;
  }
}

void release(Remote &remote, uint64_t me, uint64_t holder) {
  remote.compare_swap(lock, word(holder, me), word(holder, 0)); // if it is still ours
}
// [acquire]

// [fence]
// Marks the value as this holder's. From then on, an earlier holder that is only slow, not dead,
// cannot change it.
uint64_t fence(Remote &remote, uint64_t holder) {
  uint64_t seen = remote.fetch_add(value, 0);
  while (upper(seen) < holder) {
    const uint64_t marked = word(holder, lower(seen));
    const uint64_t found = remote.compare_swap(value, seen, marked);
    seen = found == seen ? marked : found;
  }
  return seen;
}

// False if another holder has come since: then nothing is written.
bool write_as(Remote &remote, uint64_t holder, uint64_t seen) {
  return upper(seen) == holder &&
         remote.compare_swap(value, seen, word(holder, lower(seen) + 1)) == seen;
}
// [fence]

// [worker]
void worker(Remote &remote, uint64_t me, const Settings &settings) {
  for (uint32_t i = 0; i < settings.increments; ++i)
    remote.fetch_add(counter, 1);
  for (uint32_t i = 0; i < settings.locked;) {
    const uint64_t holder = acquire(remote, me, std::chrono::milliseconds(settings.lease_ms));
    if (write_as(remote, holder, fence(remote, holder)))
      ++i;
    release(remote, me, holder);
  }
}
// [worker]

// [holder]
// Takes the lock, and then stops in the middle of its work.
void holder(Remote &remote, uint64_t me, const Settings &settings) {
  const uint64_t holder = acquire(remote, me, std::chrono::milliseconds(settings.lease_ms));
  const uint64_t seen = fence(remote, holder);
  std::printf("holder %" PRIu64 " has the lock\n", holder);
  raise(SIGSTOP);
  std::printf("holder %" PRIu64 " goes on, and its write is %s\n", holder,
              write_as(remote, holder, seen) ? "done" : "refused: there was another since");
}
// [holder]

using Work = void (*)(Remote &remote, uint64_t me, const Settings &settings);

void connected(const PairOptions &options, uint64_t me, const Settings &settings, Work work) {
  const Port port = open_port(options);
  uint64_t result = 0;
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &result, sizeof result, access);
  const unique_cq cq = create_cq(port.context.get(), 1);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_send_sge = 1});
  to_init(qp.get(), port);
  Exchange exchange(options);
  const RemoteMemory theirs = connect(qp.get(), port, exchange, options, share(mr.get()));
  if (theirs.length < sizeof(Words) || theirs.address % alignof(Words) != 0)
    throw Error("the peer's memory", "the words are not in it");
  Remote remote(qp.get(), cq.get(), mr.get(), result, theirs, options.timeout);
  work(remote, me, settings);
  // The peer answers this READ after the requests before it are in its memory (lesson 04).
  remote.read(counter);
  exchange.send_done(); // the server never sends to this QP, so it may go at once
}

// [start]
// The process opens the device itself: nothing of verbs may come through a fork (lesson 15).
pid_t start(const PairOptions &options, uint64_t me, const Settings &settings, Work work) {
  std::fflush(stdout);
  const pid_t pid = check_errno(fork(), "fork");
  if (pid != 0)
    return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL); // otherwise a stopped process would outlive its parent
  int status = 0;
  try {
    connected(options, me, settings, work);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: process %" PRIu64 ": %s\n", me, error.what());
    status = 1;
  }
  std::fflush(stdout);
  _exit(status); // do not return into the parent's code
}
// [start]

void wait_until(pid_t pid, bool (*is_so)(int status), int options, const char *what) {
  int status = 0;
  check_errno(waitpid(pid, &status, options), "waitpid");
  if (!is_so(status)) {
    const int ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    throw Error(what, "ended with status " + std::to_string(ended));
  }
}

void client(const PairOptions &options, const Settings &settings) {
  const auto ended = [](int status) { return status == 0; };
  const auto stopped = [](int status) { return WIFSTOPPED(status); };
  const auto killed = [](int status) { return WIFSIGNALED(status); };

  require_atomics(open_port(options).context.get()); // closed again before the first fork

  pid_t second = 0;
  if (settings.locked > 0) {
    const pid_t first = start(options, 1, settings, holder);
    wait_until(first, stopped, WUNTRACED, "the first holder");
    kill(first, SIGKILL);
    wait_until(first, killed, 0, "the first holder");
    std::printf("it is dead\n");

    second = start(options, 2, settings, holder);
    wait_until(second, stopped, WUNTRACED, "the second holder");
    std::printf("it took the lock from the dead, and sleeps\n");
  }
  std::vector<pid_t> workers;
  for (uint32_t i = 0; i < settings.processes; ++i)
    workers.push_back(start(options, 3 + i, settings, worker));
  for (const pid_t pid : workers)
    wait_until(pid, ended, 0, "a process");
  std::printf("%u processes: %u increments each, and %u under the lock\n", settings.processes,
              settings.increments, settings.locked);
  if (second != 0) {
    kill(second, SIGCONT);
    wait_until(second, ended, 0, "the second holder");
  }
}

void atomics(int argc, char **argv) {
  CommandLine line{"Many processes change the same words of a server's memory."};
  PairOptions options{line};
  Settings settings;
  line.add("--processes", settings.processes, "how many, on both sides the same [4]", 1, 64);
  line.add("--increments", settings.increments, "of the counter, each process [1000]", 0,
           1'000'000);
  line.add("--locked", settings.locked, "increments under the lock, each process; 0: no lock [100]",
           0, 1'000'000);
  line.add("--lease", settings.lease_ms, "after how many ms a holder is taken for dead [500]", 10,
           60'000);
  line.parse(argc, argv);
  if (options.is_server())
    server(options, settings);
  else
    client(options, settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, atomics);
}

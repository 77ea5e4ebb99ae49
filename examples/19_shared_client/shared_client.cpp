// 19_shared_client, the client: many processes and threads ask a server, or several, by a few connections that they share. One
// thread has the connections, and sends what is ready in groups.
//
// Lesson:  lessons/19_shared_client.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 19_shared_client
// By hand: shared_client --host ADDRESS                          workers that are its children
//          shared_client --host ADDRESS --name NAME --serve      none of its own: until SIGTERM
//          shared_client --attach NAME                           a worker that was started on its own

#include "console.hpp"
#include "load.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/stopwatch.hpp>
#include <rdmashared/sender.hpp>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;
using namespace shared_client;

namespace {

struct Wanted {
  SenderOptions sender{.servers = {}, .log = log_line};
  Load load;
  uint32_t processes = 4;
  std::string also, attach, waiting = "events";
  bool is_to_serve = false, print_stats = false;
  uint32_t report = 0; // seconds
  std::chrono::seconds timeout{5};
};

// For the rounds before: --seconds has no larger value. If the parent ends, so does the child.
constexpr std::chrono::hours patience(24);

// [worker-process]
// A child, forked before there is any RDMA in this process. It is told when the connections are up, and tells what came of it.
class WorkerProcess {
public:
  WorkerProcess(const Wanted &wanted, const Load &load, uint32_t number) {
    auto [sender_end, worker_end] = make_link();
    sender_end_ = std::move(sender_end);
    child_ = std::make_unique<Child>([&, end = &worker_end](const Link &parent) {
      parent.hear(patience); // there is a sender
      std::vector<Link> links;
      links.push_back(std::move(*end));
      Caller caller(std::move(links), waiting_of(wanted.waiting));
      parent.hear(patience); // and it is connected
      const Score score = run_load(caller, load, number);
      parent.tell({reinterpret_cast<const char *>(&score), sizeof score});
    });
  }
  Link take_link() { return std::move(sender_end_); }
  void go_on() const { child_->link().tell("go on"); }
  Score end(std::chrono::milliseconds limit) {
    const std::string text = child_->link().hear(limit);
    Score score;
    if (text.size() != sizeof score || child_->wait(limit) != 0)
      throw Error("a worker", "it has failed", Where::here());
    std::memcpy(&score, text.data(), sizeof score);
    return score;
  }

private:
  Link sender_end_;
  std::unique_ptr<Child> child_;
};
// [worker-process]

// "ADDRESS:PORT,ADDRESS:PORT"
std::vector<ServerAddress> servers_in(const std::string &list, uint16_t port) {
  std::vector<ServerAddress> servers;
  std::istringstream in(list);
  for (std::string one; std::getline(in, one, ',');) {
    const size_t colon = one.find(':');
    servers.push_back({.host = one.substr(0, colon), .port = port});
    if (colon == std::string::npos)
      continue;
    const char *end = one.data() + one.size();
    const auto [rest, error] = std::from_chars(one.data() + colon + 1, end, servers.back().port);
    if (error != std::errc() || rest != end)
      throw Error("--also", "'" + one + "' is not ADDRESS:PORT", Where::here());
  }
  return servers;
}

// Before it says that it is up: whoever reads that may send one at once.
sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  check_errno(sigprocmask(SIG_BLOCK, &set, nullptr), "sigprocmask");
  return set;
}

void wait_for_signal(const Sender &sender, const sigset_t &set) {
  const timespec second{.tv_sec = 1, .tv_nsec = 0};
  while (sigtimedwait(&set, nullptr, &second) < 0)
    if (!sender.is_running()) // a ring was damaged, and it has said so
      throw Error("the sender", "it has ended", Where::here());
}

void print(const Score &score) {
  std::printf("%" PRIu64 " responses, and all of them right\n", score.right);
  if (score.lost + score.not_sent + score.other > 0)
    std::printf("failed: %" PRIu64 " lost, %" PRIu64 " not sent, %" PRIu64 " for other reasons\n",
                score.lost, score.not_sent, score.other);
}

// --report: how many requests were sent, each so many seconds, until this object goes.
class Report {
public:
  Report(const Sender &sender, uint32_t seconds) {
    if (seconds > 0)
      thread_ = std::jthread([&sender, seconds](const std::stop_token &stop) {
        std::mutex mutex;
        std::condition_variable_any end;
        std::unique_lock lock(mutex);
        for (uint64_t before = sender.counts().messages;; before = sender.counts().messages) {
          end.wait_for(lock, stop, std::chrono::seconds(seconds), [] { return false; });
          if (stop.stop_requested())
            return;
          std::printf("%.0f requests/s\n",
                      static_cast<double>(sender.counts().messages - before) / seconds);
        }
      });
  }

private:
  std::jthread thread_;
};

// [round]
// One sender, and the workers that ask by it.
class Round {
public:
  // @param largest 0: responses come in the slots
  Round(const Wanted &wanted, uint32_t largest)
      : wanted_(wanted), options_(wanted.sender), load_(wanted.load) {
    options_.largest_response = largest;
    load_.is_long = largest > 0;
    for (uint32_t i = 0; i < wanted.processes; ++i)
      workers_.emplace_back(wanted, load_, i);
  }

  void run() {
    std::vector<Link> links;
    for (WorkerProcess &worker : workers_)
      links.push_back(worker.take_link());
    Sender sender(options_, std::move(links));
    for (const WorkerProcess &worker : workers_)
      worker.go_on();
    sender.wait_until_up(wanted_.timeout);
    const uint32_t largest = options_.largest_response;
    const std::optional<sigset_t> signals =
        wanted_.is_to_serve ? std::optional(block_signals()) : std::nullopt;
    std::printf("%u connection%s up, responses come %s\n", sender.connections(),
                sender.connections() == 1 ? " is" : "s are",
                largest > 0 ? "by a connection of their own" : "in the slots");
    std::fflush(stdout);
    if (signals)
      return wait_for_signal(sender, *signals);
    Report report(sender, wanted_.report);
    const Stopwatch watch;
    const double cpu_before = machine_cpu_ms();
    const Score score = run_workers(sender);
    const double took_ms = watch.elapsed_ms(), cpu_ms = machine_cpu_ms() - cpu_before;
    std::printf("%u processes of %u threads: ", std::max(wanted_.processes, 1U),
                wanted_.load.threads);
    print(score);
    const double each = 1000 / static_cast<double>(std::max<uint64_t>(score.right, 1));
    std::printf("a request every %.3f us, CPU %.3f us each\n", took_ms * each, cpu_ms * each);
    if (load_.is_timed)
      score.latencies.print();
    if (wanted_.print_stats)
      print_counts("sender", sender.counts());
  }

private:
  Score run_workers(Sender &sender) {
    if (workers_.empty()) {
      Caller caller = sender.caller(waiting_of(wanted_.waiting));
      return run_load(caller, load_, 0);
    }
    for (const WorkerProcess &worker : workers_)
      worker.go_on();
    Score score;
    for (WorkerProcess &worker : workers_)
      score.add(worker.end(wanted_.timeout + std::chrono::seconds(wanted_.load.seconds + 600)));
    return score;
  }

  const Wanted &wanted_;
  SenderOptions options_;
  Load load_;
  std::vector<WorkerProcess> workers_;
};
// [round]

void shared_client_program(int argc, char **argv) {
  CommandLine line{"Many workers ask servers by connections that they share."};
  CmOptions where{line, "the server"};
  Wanted wanted;
  SenderOptions &sender = wanted.sender;
  Load &load = wanted.load;
  std::string waiting = "events", responses = "both";
  std::chrono::seconds connect_within{5};
  uint32_t largest = 65536, group_id = 0;
  line.add("--connect-within", connect_within, "how long an attempt to connect may take");
  line.add("--also", wanted.also, "further servers: ADDRESS[:PORT],ADDRESS[:PORT]");
  line.add("--to", load.server, "all requests to this server: 0 is --host [-1: they take turns]",
           -1, 13);
  line.add("--connections", sender.connections, "to each server [1]", 1, 14);
  line.add("--slots", sender.slots, "of each connection, a power of two [1024]", 1, 1 << 24);
  line.add("--slot-size", sender.slot_size, "bytes, a multiple of 64 [256]", 64, 1 << 20);
  line.add("--window", sender.window, "requests without an answer [1024, at most --slots]", 1,
           1 << 16);
  line.add("--quota", sender.quota, "slots of one process; 0: half of all [0]", 0, 1 << 24);
  line.add("--group", sender.group, "most slots in a group; 1: each message by itself [255]", 1,
           255);
  line.add("--responses", responses,
           "where they go: slots, connection (one of their own), or first the one and then the "
           "other: both [both]",
           {"slots", "connection", "both"});
  line.add("--largest", largest,
           "bytes of a response, if they have a connection of their own [65536]", 64, 1 << 26);
  line.add("--sender-threads", sender.threads, "threads that have the connections [1]", 1, 14);
  line.add("--sender-waits", waiting, "how the sender waits: poll, events or spin [events]",
           waiting_names);
  line.add("--waiting", wanted.waiting, "how the workers wait [events]", waiting_names);
  line.add("--processes", wanted.processes, "workers; 0: threads of this process [4]", 0, 1000);
  line.add("--threads", load.threads, "of each worker [2]", 1, 1024);
  line.add("--requests", load.requests, "of each thread [200]", 1, 100'000'000);
  line.add("--seconds", load.seconds, "for so long instead; 0: --requests [0]", 0, 36'000);
  line.add("--in-flight", load.in_flight, "requests of a thread that wait for a response [1]", 1,
           4096);
  line.add("--size", load.size, "bytes of a request [32]", 0, 1 << 26);
  line.add("--response-size", load.response_size, "bytes of a response [32]", 0, 1 << 26);
  line.add("--mixed", load.is_mixed, "random sizes up to these, and all kinds of requests");
  line.add("--patient", load.is_patient, "goes on after a request that has failed");
  line.add("--microseconds", load.microseconds, "that the server takes for each request [0]", 0,
           60'000'000);
  line.add("--name", sender.name, "under which other processes may attach", 100);
  line.add("--group-id", group_id, "whose members may attach as well; 0: nobody but this user [0]");
  line.add("--serve", wanted.is_to_serve, "no workers of its own: until SIGTERM");
  line.add("--attach", wanted.attach, "be a worker of the client with this name", 100);
  line.add("--latency", load.is_timed, "prints how long requests take");
  line.add("--report", wanted.report, "prints the rate each so many seconds; 0: never [0]", 0,
           3600);
  line.add("--stats", wanted.print_stats, "prints at the end what the sender has done");
  line.parse(argc, argv);
  load.limit = wanted.timeout = where.timeout;
  if (!wanted.attach.empty()) {
    Caller caller = Caller::join(wanted.attach, waiting_of(wanted.waiting));
    load.is_long = caller.largest_response() > 0;
    print(run_load(caller, load, static_cast<uint32_t>(getpid())));
    return;
  }
  sender.connect_within = connect_within;
  sender.waiting = waiting_of(waiting);
  sender.servers = servers_in(wanted.also, where.cm_port);
  sender.servers.insert(sender.servers.begin(), {.host = where.host, .port = where.cm_port});
  if (group_id > 0)
    sender.members = group_id;
  if (wanted.is_to_serve)
    wanted.processes = 0;
  // All workers are forked before there is any RDMA, whenever their turn comes (lesson 14).
  std::vector<std::unique_ptr<Round>> rounds;
  if (responses != "connection")
    rounds.push_back(std::make_unique<Round>(wanted, 0));
  if (responses == "connection" || (responses == "both" && !wanted.is_to_serve))
    rounds.push_back(std::make_unique<Round>(wanted, largest));
  for (const auto &round : rounds)
    round->run();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, shared_client_program);
}

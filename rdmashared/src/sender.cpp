// SPDX-License-Identifier: MIT
// Layer: API. A Sender: its threads, and the members that are divided among them.
#include "rdmashared/sender.hpp"

#include "members.hpp"
#include "sender_loop.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace rdmashared {

using rdmacommon::Error, rdmacommon::Link;
using std::chrono::milliseconds;

namespace {

Shape shape_of(const SenderOptions &options) {
  const bool has_data = options.largest_response > 0;
  const Shape shape{.slots = options.slots,
                    .slot_size = options.slot_size,
                    .window = options.window,
                    .long_responses = has_data ? options.long_responses : 0,
                    .largest = options.largest_response};
  const auto servers = static_cast<int64_t>(options.servers.size());
  check_options("SenderOptions",
                {{"servers", servers, 1, max_servers},
                 {"connections", options.connections, 1, 255},
                 {"slots", options.slots, 8, 1 << 24},
                 {"slot_size", options.slot_size, 32, 1 << 20},
                 {"window", options.window, 1, 1 << 20},
                 {"area_slots", options.area_slots, 1, AreaShape::max_slots},
                 {"largest_response", options.largest_response, 0, 1 << 26},
                 {"long_responses", options.long_responses, has_data, 1 << 16},
                 {"group", options.group, 1, max_run},
                 {"threads", options.threads, 1, UINT32_MAX},
                 {"connect_within", options.connect_within.count(), 1, a_day},
                 {"retry_delay", options.retry_delay.count(), 0, a_day},
                 {"max_retry_delay", options.max_retry_delay.count(), 0, a_day},
                 {"peer_timeout", options.peer_timeout.count(), Lane::tick.count(), INT64_MAX}});
  if (!is_possible(shape))
    throw Error("SenderOptions",
                "slot_size must be a multiple of 8, and all slots have 2 GiB together at most");
  return shape;
}

} // namespace

class SenderThreads {
public:
  // Delegates first: if this constructor throws, the destructor ends what the other one has made.
  SenderThreads(const SenderOptions &options, std::vector<Link> links) : SenderThreads(options) {
    const Shape shape = shape_of(options_);
    why_.assign(options_.threads, "it has not been tried yet");
    std::vector<SenderThread> threads;
    for (uint32_t i = 0; i < options_.threads; ++i) {
      loops_.push_back(std::make_unique<SenderLoop>(
          options_, shape, [this, i](int more, std::string_view why) { note(i, more, why); },
          [this, i](uint32_t number) { members_->is_free(i, number); },
          [this, i](uint32_t number) { members_->drop(i, number); }));
      SenderLoop &loop = *loops_.back();
      threads.push_back({.board = loop.board(),
                         .joined = [&loop](Member member) { loop.join(std::move(member)); },
                         .left = [&loop](uint32_t number) { loop.leave(number); }});
    }
    members_ = std::make_unique<Members>(
        AreaShape{.slots = options_.area_slots,
                  .slot_size = options_.slot_size,
                  .long_responses = shape.long_responses,
                  .largest = shape.largest,
                  .longest = longest_message(shape.slots) * shape.slot_size - Header::bytes -
                             ResponseBuffer::bytes},
        std::move(threads), options_.name, options_.members);
    for (Link &link : links)
      members_->invite(std::move(link));
    const NoSignals no_signals;
    for (const auto &loop : loops_)
      threads_.emplace_back([this, its = loop.get()] { run(*its); });
  }
  ~SenderThreads() {
    for (const auto &loop : loops_)
      loop->stop();
    for (std::thread &thread : threads_)
      thread.join();
    members_.reset(); // before the loops that it calls
  }
  SenderThreads(const SenderThreads &) = delete;
  SenderThreads &operator=(const SenderThreads &) = delete;

private:
  friend class Sender;

  explicit SenderThreads(const SenderOptions &options) : options_(with_log(options)) {}
  void run(SenderLoop &loop) {
    try {
      loop.run();
    } catch (const std::exception &error) { // the host, or its device, has not what it needs
      loop.mark_ended();
      const std::lock_guard lock(mutex_);
      failure_ = error.what();
      is_unsupported_ = dynamic_cast<const rdmacommon::Unsupported *>(&error) != nullptr;
      changed_.notify_all();
    }
  }
  void note(uint32_t loop, int more, std::string_view why) {
    const std::lock_guard lock(mutex_);
    up_ += static_cast<uint32_t>(more);
    why_[loop] = why.substr(0, why.find('\n')); // without the hint, which the log has
    changed_.notify_all();
  }

  // Returns the first error of the connections. The caller holds the lock.
  std::string why() const {
    const auto its = std::ranges::find_if(why_, [](const auto &each) { return !each.empty(); });
    return !failure_.empty() ? failure_ : its == why_.end() ? "" : *its;
  }

  const SenderOptions options_;
  mutable std::mutex mutex_; // protects the members below
  std::condition_variable changed_;
  uint32_t up_ = 0; // connections
  // The reason why a connection of each loop is not up; empty if all are.
  std::vector<std::string> why_;
  std::string failure_;         // it has ended a loop; empty if all go on
  bool is_unsupported_ = false; // the device's lack of something is this failure
  std::vector<std::unique_ptr<SenderLoop>> loops_;
  std::unique_ptr<Members> members_;
  std::vector<std::thread> threads_;
};

Sender::Sender(const SenderOptions &options, std::vector<Link> links)
    : threads_(std::make_unique<SenderThreads>(options, std::move(links))) {}

Sender::~Sender() = default;

uint32_t Sender::connections() const {
  const SenderOptions &options = threads_->options_;
  return options.threads * options.connections * static_cast<uint32_t>(options.servers.size());
}

void Sender::wait_connected(milliseconds limit) {
  std::unique_lock lock(threads_->mutex_);
  const auto is_over = [&] {
    return !threads_->failure_.empty() || threads_->up_ == connections();
  };
  const bool in_time = threads_->changed_.wait_until(lock, rdmacommon::deadline_in(limit), is_over);
  if (threads_->is_unsupported_)
    throw rdmacommon::Unsupported(threads_->failure_);
  if (!in_time || !threads_->failure_.empty())
    throw Error("the connections", std::to_string(threads_->up_) + " of " +
                                       std::to_string(connections()) +
                                       " are up: " + threads_->why());
}

bool Sender::is_running() const {
  const std::lock_guard lock(threads_->mutex_);
  return threads_->failure_.empty();
}

std::string Sender::why() const {
  const std::lock_guard lock(threads_->mutex_);
  return threads_->why();
}

Caller Sender::caller(Waiting waiting) {
  auto [mine, theirs] = rdmacommon::make_link();
  threads_->members_->invite(std::move(mine));
  return Caller(std::move(theirs), waiting);
}

void SenderLoop::add_to(Metrics &metrics, size_t thread) const {
  using enum Metrics::Type;
  const std::string of_thread = Metrics::label("thread", std::to_string(thread));
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane &lane = *lanes_[i];
    const ServerAddress &server = options_.servers[lane.server];
    const std::string labels =
        of_thread + ',' + Metrics::label("lane", std::to_string(i)) + ',' +
        Metrics::label("server", server.host + ':' + std::to_string(server.port));
    metrics.add("lane_up", "Whether the connection is up.", gauge, lane.is_up(), labels);
    metrics.add("lane_requests", "Requests sent and not answered.", gauge, lane.under_way(),
                labels);
    metrics.add("lane_window", "Most requests that may be so.", gauge, lane.window(), labels);
  }
  for (const auto &worker : workers_) {
    const std::string labels = of_thread + ',' +
                               Metrics::label("worker", std::to_string(worker->number)) + ',' +
                               Metrics::label("pid", std::to_string(worker->member.pid));
    metrics.add("worker_requests", "Requests of a process that have no outcome.", gauge,
                worker->under_way, labels);
  }
  size_t waiting = 0;
  for (const Queues &each : waiting_)
    waiting += each.others.size() + each.long_ones.size();
  metrics.add("waiting_requests", "Requests for which no lane has had room yet.", gauge,
              static_cast<double>(waiting), of_thread);
}

Metrics Sender::metrics() const {
  Metrics all;
  std::vector<const Stats *> stats;
  for (size_t i = 0; i < threads_->loops_.size(); ++i) {
    SenderLoop &loop = *threads_->loops_[i];
    loop.loop().add_to(all, [&loop, i](Metrics &its) { loop.add_to(its, i); });
    stats.push_back(&loop.stats());
  }
  uint64_t cancels = 0;
  for (const Stats *each : stats)
    cancels += each->cancels;
  all.add("cancels_total", "Requests that callers gave up: their limit passed, or cancel().",
          Metrics::Type::counter, static_cast<double>(cancels));
  add_to(all, stats, "Time for which requests waited for a place in a ring, of 1 in 16.",
         "Time from sending a request to its answer, of 1 in 16.");
  return all;
}

Counts Sender::counts() const {
  Counts all;
  for (const auto &loop : threads_->loops_)
    add(all, loop->stats());
  return all;
}

} // namespace rdmashared

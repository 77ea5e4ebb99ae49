// SPDX-License-Identifier: MIT
// Layer: ends. Parts that the threads of both ends share: a loop that sleeps on descriptors,
// functions that other threads send to it, threads for work that takes long, and the number of
// looks before a sleep.
#pragma once

#include "rdmashared/basics.hpp"
#include "rdmashared/metrics.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <initializer_list>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace rdmashared {

// The clock of all deadlines. Nobody can set it.
using Clock = std::chrono::steady_clock;

constexpr uint32_t busy_turns = 64; // a loop that always has something to do looks around so often

// A descriptor that is readable once somebody has rung.
class Event {
public:
  int fd() const { return file_.get(); }
  // Makes the descriptor readable. Any thread can call it, and so can a signal handler. It cannot
  // fail: a counter that is full is readable, too.
  void ring() const noexcept {
    const int before = errno;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(file_.get(), &one, sizeof one);
    errno = before;
  }
  // @return whether somebody has
  bool take_back() const noexcept {
    uint64_t count;
    return read(file_.get(), &count, sizeof count) == sizeof count;
  }

private:
  rdmacommon::File file_{
      rdmacommon::check_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")};
};

// A thread inherits what is blocked where it is made. Signals that somebody sends are the
// program's, so they go to its other threads. Signals that a thread raises by what it does stay:
// handlers of the program run here, and a crash in them must end the program in the usual way.
class NoSignals {
public:
  NoSignals() {
    sigset_t sent;
    sigfillset(&sent);
    for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
      sigdelset(&sent, raised);
    pthread_sigmask(SIG_BLOCK, &sent, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals &) = delete;
  NoSignals &operator=(const NoSignals &) = delete;

private:
  sigset_t before_{};
};

// Returns the options with a log that is never empty, and that one thread at a time calls. If the
// program has none, it drops the lines.
template <typename Options> Options with_log(Options options) {
  options.log = [mutex = std::make_shared<std::mutex>(),
                 its = std::move(options.log)](Level level, std::string_view line) {
    if (!its)
      return;
    const std::lock_guard lock(*mutex);
    its(level, line);
  };
  return options;
}

constexpr int64_t a_day = 24 * 3'600'000; // in ms

// A numeric option: its value, and the range that it must be in.
struct OptionLimits {
  const char *name;
  int64_t value, least, most;
};

// @throws Error that names the option that is wrong
inline void check_options(const std::string &of, std::initializer_list<OptionLimits> options) {
  for (const OptionLimits &each : options)
    if (each.value < each.least || each.value > each.most)
      throw rdmacommon::Error(of + "::" + each.name,
                              "it is " + std::to_string(each.value) + ", and must be " +
                                  std::to_string(each.least) + " to " + std::to_string(each.most));
}

// The words of an exception of any type, which a function of the program has thrown.
inline std::string words_of(const std::exception_ptr &failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception &error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

// [idle_policy]
// Decides how often a thread that has found nothing looks again before it sleeps. Some looks cost
// less than a sleep and a wake, as long as looking has paid lately.
class IdlePolicy {
public:
  explicit IdlePolicy(Waiting how) : how_(how) {}

  // The number of looks before the next sleep.
  int looks() const {
    if (how_ != Waiting::adaptive)
      return how_ == Waiting::poll ? INT_MAX : 0;
    return score_.load(std::memory_order_relaxed) > 0 ? most : few;
  }
  // @param looked how often
  // @param has_found at the last look
  void note(int looked, bool has_found) {
    const int score = score_.load(std::memory_order_relaxed);
    if (looked > 0)
      score_.store(std::clamp(score + (has_found ? 1 : -1), 0, best), std::memory_order_relaxed);
  }

private:
  static constexpr int most = 100, few = 2, best = 8;
  const Waiting how_;
  std::atomic<int> score_ = best; // several threads may look
};
// [idle_policy]

// Sleeps until something happens, and calls what belongs to it. Of one thread, apart from send().
class Loop {
public:
  Loop() {
    watch(sent_.fd(), [this] { call_functions(); });
  }
  Loop(const Loop &) = delete;
  Loop &operator=(const Loop &) = delete;

  // @param fd called when it is readable, until forget()
  // @param edge once for each time that something new comes, so that nobody has to read it
  void watch(int fd, std::function<void()> function, bool edge = false) {
    watched_.push_back({fd, std::move(function)});
    epoll_event event{.events = EPOLLIN | (edge ? uint32_t{EPOLLET} : 0),
                      .data = {.ptr = &watched_.back()}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0) {
      const int error = errno;
      watched_.pop_back(); // or forget() would find it when the number belongs to another file
      rdmacommon::throw_errno(error, "epoll_ctl");
    }
  }
  // Ends the watch on a descriptor. A descriptor that nobody watches is no mistake.
  void forget(int fd) {
    const auto is_it = [fd](const Watched &each) { return each.fd == fd; };
    if (const auto it = std::ranges::find_if(watched_, is_it); it != watched_.end()) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
      it->fd = -1; // its event may be in the hands of wait()
      forgotten_.splice(forgotten_.end(), watched_, it);
    }
  }

  // Lets the loop's thread call the function; after close(), drops it. Any thread can call this.
  void send(std::function<void()> function) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closed_)
        return;
      functions_.push_back(std::move(function));
    }
    sent_.ring();
  }
  // Adds the loop's figures, in the loop's thread. Any thread can call this. If the loop does not
  // come to that within a second, nothing is added.
  // @param add owns all that it uses
  void add_to(Metrics &metrics, const std::function<void(Metrics &)> &add) {
    if (thread_.load(std::memory_order_relaxed) == std::this_thread::get_id())
      return add(metrics);
    const auto done = std::make_shared<std::promise<Metrics>>();
    auto answer = done->get_future();
    send([so_far = metrics, add, done]() mutable {
      add(so_far);
      done->set_value(std::move(so_far));
    });
    if (answer.wait_for(std::chrono::seconds(1)) == std::future_status::ready)
      metrics = answer.get();
  }
  void close() {
    std::vector<std::function<void()>> dropped;
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    dropped.swap(functions_);
  }

  // Calls what belongs to all that has happened.
  // @param until when it returns, if it sleeps and nothing happens
  void wait(Clock::time_point until, bool may_sleep) {
    thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    std::array<epoll_event, 64> events;
    const int count =
        epoll_wait(epoll_.get(), events.data(), events.size(), may_sleep ? left(until) : 0);
    if (count < 0 && errno != EINTR)
      rdmacommon::throw_errno(errno, "epoll_wait");
    for (int i = 0; i < count; ++i)
      if (auto *watched = static_cast<Watched *>(events.at(i).data.ptr); watched->fd >= 0)
        watched->function();
    forgotten_.clear();
  }

private:
  struct Watched {
    int fd;
    std::function<void()> function;
  };
  static int left(Clock::time_point until) { // milliseconds, a minute at most
    const auto now = Clock::now();
    if (until <= now) // also time_point::min(), from which nothing can be subtracted
      return 0;
    return static_cast<int>(std::min<int64_t>(
        std::chrono::ceil<std::chrono::milliseconds>(until - now).count(), 60'000));
  }
  void call_functions() {
    sent_.take_back();
    std::vector<std::function<void()>> functions;
    {
      const std::lock_guard lock(mutex_);
      functions.swap(functions_);
    }
    for (const auto &function : functions)
      function();
  }

  rdmacommon::File epoll_{rdmacommon::check_errno(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")};
  std::list<Watched> watched_, forgotten_;
  std::atomic<std::thread::id> thread_;
  Event sent_;
  std::mutex mutex_; // protects the two members below
  std::vector<std::function<void()>> functions_;
  bool is_closed_ = false;
};

// Threads for what takes long, with two queues: the urgent one goes first.
class Pool {
public:
  explicit Pool(uint32_t threads, Waiting waiting = Waiting::events) : idle_policy_(waiting) {
    const NoSignals no_signals;
    try {
      for (uint32_t i = 0; i < threads; ++i)
        threads_.emplace_back([this] { run(); });
    } catch (...) { // the host has no more threads
      end();
      throw;
    }
  }
  ~Pool() { end(); } // functions that have not begun are dropped
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  // @param function must not throw
  // @return whether a thread that slept was woken
  bool add(std::function<void()> function, bool is_urgent = false) {
    bool wakes = false;
    {
      const std::lock_guard lock(mutex_);
      (is_urgent ? urgent_ : usual_).push_back(std::move(function));
      count();
      wakes = asleep_ > 0;
    }
    if (wakes)
      awake_.notify_one();
    return wakes;
  }
  size_t size() const { return threads_.size(); }
  bool has_urgent() const { return urgent_count_.load(std::memory_order_relaxed) > 0; }

private:
  void count() {
    urgent_count_.store(urgent_.size(), std::memory_order_relaxed);
    count_.store(urgent_.size() + usual_.size(), std::memory_order_relaxed);
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      urgent_.clear();
      usual_.clear();
      count_.store(1, std::memory_order_relaxed);
    }
    awake_.notify_all();
    for (std::thread &thread : threads_)
      thread.join();
    threads_.clear();
  }
  void run() {
    for (;;) {
      int looked = 0;
      for (; count_.load(std::memory_order_relaxed) == 0 && looked < idle_policy_.looks(); ++looked)
        sched_yield();
      idle_policy_.note(looked, count_.load(std::memory_order_relaxed) > 0);
      std::function<void()> function;
      {
        std::unique_lock lock(mutex_);
        ++asleep_;
        awake_.wait(lock, [this] { return is_over_ || !urgent_.empty() || !usual_.empty(); });
        --asleep_;
        if (is_over_)
          return;
        auto &functions = urgent_.empty() ? usual_ : urgent_;
        function = std::move(functions.front());
        functions.pop_front();
        count();
      }
      function();
    }
  }

  IdlePolicy idle_policy_;
  std::mutex mutex_;
  std::condition_variable awake_;
  std::deque<std::function<void()>> urgent_, usual_;
  std::atomic<size_t> count_ = 0, urgent_count_ = 0;
  size_t asleep_ = 0;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

// Does work that takes long in a thread of a pool, and what follows in the loop's thread.
// @param then called with what `work` has thrown, or null
inline void run_in_background(Pool &pool, Loop &loop, std::function<void()> work,
                              std::function<void(std::exception_ptr failure)> then) {
  pool.add([&loop, work = std::move(work), then = std::move(then)]() mutable {
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    // The loop's thread destroys what the work owns.
    loop.send([work = std::move(work), then = std::move(then), failure] { then(failure); });
  });
}

} // namespace rdmashared

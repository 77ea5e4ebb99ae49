// Work that takes long, kept away from a thread that must not wait: memory is made and registered, connections are taken down,
// names are looked up. Threads of a pool do it. The thread that asked does what follows, when an event says so.
#pragma once

#include "events.hpp"
#include "worker_pool.hpp"

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace rdmashared {

// [errands]
class Errands {
public:
  using Then = std::function<void(std::exception_ptr failure)>;

  explicit Errands(uint32_t threads) : pool_(threads) {}

  // @param work in a thread of the pool, one errand after the other if there is one thread
  // @param then in take_back(), with what `work` has thrown, or null
  void send(std::function<void()> work, Then then) {
    std::vector<Errand> one;
    one.push_back({this, std::move(work), std::move(then), nullptr});
    pool_.add(one);
  }

  int fd() const { return event_.fd(); } // readable if take_back() has something to do
  void take_back() {
    event_.take_back();
    std::vector<Errand> done;
    {
      const std::lock_guard lock(mutex_);
      done.swap(done_);
    }
    for (Errand &errand : done)
      errand.then(errand.failure);
  }

private:
  struct Errand { // the pool's job
    Errands *whose = nullptr;
    std::function<void()> work;
    Then then;
    std::exception_ptr failure;
    void operator()() {
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      whose->bring_back(std::move(*this));
    }
  };
  void bring_back(Errand errand) {
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(std::move(errand));
    }
    event_.ring();
  }

  Event event_;
  std::mutex mutex_;
  std::vector<Errand> done_;
  Pool<Errand>
      pool_; // goes first: it waits for the errand that is being done, and drops the others
};
// [errands]

} // namespace rdmashared

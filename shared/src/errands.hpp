// SPDX-License-Identifier: MIT
// Work that takes long, kept away from a thread that must not wait: memory is made and registered,
// connections are taken down, names are looked up. Threads of a pool do it. The thread that asked
// does what follows, when an event says so.
#pragma once

#include "orders.hpp"
#include "worker_pool.hpp"

#include <cstdint>
#include <exception>
#include <functional>
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
    one.push_back({&done_, std::move(work), std::move(then)});
    pool_.add(one);
  }

  int fd() const { return done_.fd(); } // readable if take_back() has something to do
  void take_back() { done_.carry_out(); }

private:
  struct Errand { // the pool's job
    Orders *done;
    std::function<void()> work;
    Then then;
    void operator()() {
      std::exception_ptr failure;
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      // The other thread destroys what the errand owns.
      done->send([errand = std::move(*this), failure] { errand.then(failure); });
    }
  };

  Orders done_;
  Pool<Errand>
      pool_; // goes first: it waits for the errand that is being done, and drops the others
};
// [errands]

} // namespace rdmashared

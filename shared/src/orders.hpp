// SPDX-License-Identifier: MIT
// Functions that other threads send to the thread of a loop. It carries them out in the order in
// which they came.
#pragma once

#include "events.hpp"

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace rdmashared {

// [orders]
class Orders {
public:
  using Order = std::function<void()>;

  // From any thread. After close() the order goes at once.
  void send(Order order) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closed_)
        return;
      orders_.push_back(std::move(order));
    }
    event_.ring();
  }

  int fd() const { return event_.fd(); } // readable if carry_out() has something to do
  // An exception of an order comes out of here, and the orders behind it are dropped.
  void carry_out() {
    event_.take_back();
    for (const Order &order : taken())
      order();
  }

  // Orders are not carried out any more, and are destroyed. A thread that waits for one must notice
  // that by what the order owns.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    taken();
  }

private:
  std::vector<Order> taken() {
    const std::lock_guard lock(mutex_);
    return std::exchange(orders_, {});
  }

  Event event_;
  std::mutex mutex_;
  std::vector<Order> orders_;
  bool is_closed_ = false;
};
// [orders]

} // namespace rdmashared

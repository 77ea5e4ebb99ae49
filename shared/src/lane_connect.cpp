// SPDX-License-Identifier: MIT
// How a lane comes up, and what happens when it breaks: the part of Lane that has to do with
// rdma_cm.
#include "lane.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

// While it is up: how often it checks whether the server lives.
constexpr milliseconds tick(500);

} // namespace

// [aside]
// Another thread does the work that may take long. Then this thread does what follows. Until then,
// this thread destroys nothing that the other one works with: a lane that breaks meanwhile waits
// for it.
void Lane::aside(std::function<void()> work, std::function<void()> then) {
  is_aside_ = true;
  errands_.send(std::move(work), [this, then = std::move(then)](std::exception_ptr failure) {
    is_aside_ = false;
    try {
      if (failure)
        std::rethrow_exception(failure);
      then();
    } catch (const std::exception &error) {
      lose(error.what());
    }
  });
}
// [aside]

// [begin]
void Lane::begin() {
  state_ = State::resolving;
  deadline_ = Clock::now() + options_.connect_within;
  aside([this] { address_ = cm_address(server_.host, server_.port); },
        [this] {
          if (!is_broken_)
            resolve(id_);
        });
}

void Lane::resolve(unique_cm_id &id) {
  id = create_cm_id(channel_);
  id->context = this;
  check_errno(rdma_resolve_addr(id.get(), nullptr, address_.get(),
                                static_cast<int>(options_.connect_within.count())),
              "rdma_resolve_addr");
}

void Lane::made_route() {
  set_ack_timeout(id_.get());
  const auto made = std::make_shared<std::unique_ptr<Connection>>();
  aside(
      [this, made] {
        *made = std::make_unique<Connection>(id_.get(), shape_.window, shape_.slots);
        Connection &with = **made;
        // [open-to-server]
        // The server may write where answers go, and nowhere else: not to the requests, and not to
        // what callers sleep on.
        const int local = IBV_ACCESS_LOCAL_WRITE, remote = local | IBV_ACCESS_REMOTE_WRITE;
        answers_mr_ = with.reg(answers_.slots(), remote);
        data_mr_ = shape_.largest > 0 ? with.reg(answers_.data(), remote) : nullptr;
        requests_mr_ = with.reg(ring_.data(), local);
        // [open-to-server]
      },
      [this, made] {
        connection_ = std::move(*made); // also if it is only to be taken down
        if (!is_broken_)
          connect_requests();
      });
}

void Lane::connect_requests() {
  new_fd_ = connection_->fd();
  const Hello hello{.purpose = Purpose::requests,
                    .shape = shape_,
                    .answers_address = reinterpret_cast<uint64_t>(answers_mr_->addr),
                    .data_address = data_mr_ ? reinterpret_cast<uint64_t>(data_mr_->addr) : 0,
                    .token = 0,
                    .answers_rkey = answers_mr_->rkey,
                    .data_rkey = data_mr_ ? data_mr_->rkey : 0};
  const HelloBytes bytes = to_bytes(hello);
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_connect(id_.get(), &parameters), "rdma_connect");
  state_ = State::connecting;
}
// [begin]

// [established]
void Lane::established(const rdma_cm_event &event) {
  const auto welcome = welcome_in(private_data(event));
  if (!welcome || welcome->refusal != Refusal::none)
    throw Error("the server", "its Welcome message is not valid");
  if (event.id == data_id_.get())
    return come_up();
  window_ = std::min(welcome->window, shape_.window);
  if (window_ == 0)
    throw Error("the server", "its Welcome message has a window of 0");
  token_ = welcome->token;
  mirror_ = {.mine = requests_mr_,
             .slot_size = shape_.slot_size,
             .address = welcome->requests_address,
             .rkey = welcome->requests_rkey,
             .max_inline = inline_bytes};
  if (shape_.largest == 0)
    return come_up();
  state_ = State::joining_data;
  resolve(data_id_);
}

// The same protection domain: the keys that the server was given are good for what comes by this
// queue pair, too.
void Lane::join_data() {
  set_ack_timeout(data_id_.get());
  aside([this] { connection_->add_data_connection(data_id_.get(), shape_.window, shape_.slots); },
        [this] {
          if (!is_broken_)
            connect_data();
        });
}

void Lane::connect_data() {
  const HelloBytes bytes = to_bytes(Hello{.purpose = Purpose::data,
                                          .shape = {},
                                          .answers_address = 0,
                                          .data_address = 0,
                                          .token = token_,
                                          .answers_rkey = 0,
                                          .data_rkey = 0});
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_connect(data_id_.get(), &parameters), "rdma_connect");
}

void Lane::come_up() {
  why_ = "it is up";
  state_ = State::up;
  answers_.status().longest.store(longest_in(window_), std::memory_order_relaxed);
  backoff_.reset();
  deadline_ = Clock::now() + tick;
  answers_.status().is_up.store(1, std::memory_order_release);
  wake(answers_.status().is_up, every_bit); // Caller::wait_connected()
}
// [established]

// [cm-event]
void Lane::on_cm_event(const rdma_cm_event &event) {
  const bool is_data = event.id == data_id_.get();
  if (is_broken_ || (event.id != id_.get() && !is_data))
    return; // of an attempt that has been given up
  try {
    switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      check_errno(rdma_resolve_route(event.id, static_cast<int>(options_.connect_within.count())),
                  "rdma_resolve_route");
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      is_data ? join_data() : made_route();
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      established(event);
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      throw Error("the server", "it has closed the connection");
    case RDMA_CM_EVENT_REJECTED:
      if (const auto welcome = welcome_in(private_data(event)))
        throw Error("the server rejects", words_for(welcome->refusal));
      [[fallthrough]];
    default:
      check_cm_event(event, RDMA_CM_EVENT_ESTABLISHED);
    }
  } catch (const std::exception &error) {
    lose(error.what());
  }
}
// [cm-event]

// [clock]
void Lane::look_at_the_clock() {
  if (Clock::now() < deadline_ || is_broken_)
    return;
  deadline_ = Clock::now() + tick;
  try {
    if (state_ == State::resting)
      begin();
    else if (state_ == State::up || state_ == State::draining)
      connection_->look_whether_alive();
    else
      throw Error("the server",
                  "no answer within " + std::to_string(options_.connect_within.count()) + " ms");
  } catch (const std::exception &error) {
    lose(error.what());
  }
}

// [clock]

// [lose]
// From here on nothing is sent. What was made is taken down by tear_down(), in the next turn: an
// rdma_cm event that may have led here belongs to the id, which cannot go before it has been
// acknowledged. And an errand may still work with it.
void Lane::lose(const std::string &why) {
  if (std::exchange(why_, why) != why) // once, however often it tries again
    log("the connection to " + server_.host + ": " + why);
  state_ = State::resting;
  is_broken_ = true;
  deadline_ = Clock::now() + backoff_.next();
  say_down();
}

// [tear-down]
// First the queue pairs, then the slots: as long as there is a queue pair, the server may write an
// answer.
void Lane::tear_down() {
  new_fd_ = -1;
  leave_channel({id_.get(), data_id_.get()}, connection_.get());
  struct Gone {
    unique_cm_id id, data_id;
    std::unique_ptr<Connection> connection; // goes first
  };
  const auto gone =
      std::make_shared<Gone>(Gone{std::move(id_), std::move(data_id_), std::move(connection_)});
  aside(
      [gone] {
        gone->connection.reset();
        gone->data_id.reset();
        gone->id.reset();
      },
      [this] { buried(); });
}

void Lane::buried() {
  is_broken_ = false;
  window_ = 0;
  cut_ = {};
  joined_ = {};
  for (uint32_t slot = 0; slot < sent_.size(); ++slot)
    if (sent_[slot].state == Sent::State::sent)
      finish(slot, Outcome::lost, 0);
  stats_.wakes += answers_.wake().calls;
}
// [tear-down]
// [lose]

} // namespace rdmashared

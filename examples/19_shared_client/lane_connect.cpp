// How a lane comes up, and what happens when it breaks: the part of Lane that has to do with rdma_cm.
#include "lane.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

namespace shared_client {

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

// While it is up: how often it looks whether the server lives, and whether callers collect.
constexpr milliseconds tick(500);

} // namespace

// [begin]
void Lane::begin() {
  state_ = State::resolving;
  deadline_ = Clock::now() + options_.step;
  id_ = create_cm_id(channel_);
  id_->context = this;
  CmAddress address = cm_address(options_.host, options_.port);
  check_errno(
      rdma_resolve_addr(id_.get(), nullptr, address.get(), static_cast<int>(options_.step.count())),
      "rdma_resolve_addr");
}

void Lane::made_route() {
  set_ack_timeout(id_.get());
  connection_ =
      std::make_unique<Connection>(id_.get(), options_.shape.window, options_.shape.slots);
  new_fd_ = connection_->fd();
  // [open-to-server]
  // The server may write where answers go, and nowhere else: not to the requests, and not to what callers sleep on.
  const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const ibv_mr *answers = connection_->reg(answers_.slots(), remote), *data = nullptr;
  if (options_.shape.largest > 0)
    data = connection_->reg(answers_.data(), remote);
  // [open-to-server]
  const Hello hello{.purpose = Purpose::requests,
                    .shape = options_.shape,
                    .answers_address = reinterpret_cast<uint64_t>(answers->addr),
                    .data_address = data ? reinterpret_cast<uint64_t>(data->addr) : 0,
                    .token = 0,
                    .answers_rkey = answers->rkey,
                    .data_rkey = data ? data->rkey : 0};
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
    throw Error("the server", "it answers what we do not understand", Where::here());
  if (event.id == data_id_.get())
    return come_up();
  window_ = std::min(welcome->window, options_.shape.window);
  if (window_ == 0)
    throw Error("the server", "it lets nothing be under way", Where::here());
  token_ = welcome->token;
  const int local = IBV_ACCESS_LOCAL_WRITE;
  mirror_ = {.mine = connection_->reg(ring_.data(), local),
             .slot_size = options_.shape.slot_size,
             .address = welcome->requests_address,
             .rkey = welcome->requests_rkey,
             .most_inline = inline_bytes};
  if (options_.shape.largest == 0)
    return come_up();
  state_ = State::joining_data;
  data_id_ = create_cm_id(channel_);
  data_id_->context = this;
  CmAddress address = cm_address(options_.host, options_.port);
  check_errno(rdma_resolve_addr(data_id_.get(), nullptr, address.get(),
                                static_cast<int>(options_.step.count())),
              "rdma_resolve_addr");
}

// The same protection domain: the keys that the server was given are good for what comes by this queue pair, too.
void Lane::join_data() {
  set_ack_timeout(data_id_.get());
  connection_->add_data_connection(data_id_.get());
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
  deadline_ = Clock::now() + tick;
  answers_.status().is_up.store(1, std::memory_order_release);
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
      check_errno(rdma_resolve_route(event.id, static_cast<int>(options_.step.count())),
                  "rdma_resolve_route");
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      is_data ? join_data() : made_route();
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      established(event);
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      throw Error("the server", "it has closed the connection", Where::here());
    case RDMA_CM_EVENT_REJECTED:
      if (const auto welcome = welcome_in(private_data(event)))
        throw Error("the server rejects", words_for(welcome->refusal), Where::here());
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
    else if (state_ == State::up || state_ == State::draining) {
      make_room();
      connection_->look_whether_alive();
    } else
      throw Error("the server", "no answer within " + std::to_string(options_.step.count()) + " ms",
                  Where::here());
  } catch (const std::exception &error) {
    lose(error.what());
  }
}

// [clock]

// [lose]
// From here on nothing is sent. What was made is taken down by bury(), in the next turn: an rdma_cm event that may have led here
// belongs to the id, which cannot go before it has been acknowledged.
void Lane::lose(const std::string &why) {
  if (std::exchange(why_, why) != why) // once, however often it tries again
    std::fprintf(stderr, "the connection to %s: %s\n", options_.host.c_str(), why.c_str());
  state_ = State::resting;
  is_broken_ = true;
  deadline_ = Clock::now() + options_.rest;
  answers_.status().is_up.store(0, std::memory_order_release);
}

// First the queue pairs, then the slots: as long as there is a queue pair, the server may write an answer.
void Lane::bury() {
  is_broken_ = false;
  new_fd_ = -1;
  connection_.reset();
  data_id_.reset();
  id_.reset();
  window_ = 0;
  for (uint32_t slot = 0; slot < sent_.size(); ++slot)
    if (sent_[slot].state == Sent::State::sent)
      finish(slot, Outcome::lost, 0);
  stats_.wakes += answers_.wake();
}
// [lose]

} // namespace shared_client

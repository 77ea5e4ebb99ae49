// SPDX-License-Identifier: MIT
#include "lane.hpp"

#include "sender_loop.hpp"

#include <rdmacommon/check.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;
using std::chrono::milliseconds;

namespace {

// A connection that has been up for so long has worked: the next attempt comes soon.
constexpr std::chrono::seconds long_enough(5);

} // namespace

Lane::Lane(uint32_t of_server, const SenderOptions &options, const Shape &shape,
           rdma_event_channel *channel, Loop &loop, Pool &pool, Stats &stats, SenderLoop &owner)
    : server(of_server), options_(options), address_of_server_(options.servers.at(of_server)),
      shape_(shape), channel_(channel), loop_(loop), pool_(pool), stats_(stats), owner_(owner) {}

Lane::~Lane() {
  if (connection_) {
    loop_.forget(connection_->fd());
    connection_->destroy_queue_pairs(); // nobody writes to the response buffers any more
  }
  buffers_.clear();
}

// Any failure ends the connection, and nothing else.
// @return whether the function has returned true
template <typename Function> bool Lane::try_to(Function function) {
  try {
    return function();
  } catch (const Unsupported &) { // no further attempt will succeed
    throw;
  } catch (const std::exception &error) {
    lose(error.what());
    return true;
  }
}

// Another thread does the work that may take long. Then this thread does what follows. Until then
// this thread destroys nothing that the other one works with: a connection that breaks meanwhile
// waits for it.
void Lane::start_background_work(std::function<void()> work, std::function<void()> then) {
  background_pending_ = true;
  run_in_background(pool_, loop_, std::move(work),
                    [this, then = std::move(then)](std::exception_ptr failure) {
                      background_pending_ = false;
                      try_to([&] {
                        if (failure)
                          std::rethrow_exception(failure);
                        then();
                        return true;
                      });
                      if (is_broken_ && !background_pending_)
                        take_down();
                    });
}

// ---- connecting

void Lane::begin() {
  state_ = State::connecting;
  deadline_ = Clock::now() + options_.connect_within;
  start_background_work(
      [this] { address_ = cm_address(address_of_server_.host, address_of_server_.port); },
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

void Lane::route_resolved() {
  set_ack_timeout(id_.get());
  const auto made = std::make_shared<std::unique_ptr<Connection>>();
  start_background_work(
      [this, made] {
        *made = std::make_unique<Connection>(id_.get(), shape_, options_.group, stats_);
      },
      [this, made] {
        connection_ = std::move(*made); // also if it is only to be taken down
        if (!is_broken_)
          connect_requests();
      });
}

void Lane::connect_requests() {
  loop_.watch(connection_->fd(), [this] {
    try_to([this] {
      connection_->take_event();
      return true;
    });
  });
  const HelloBytes bytes = to_bytes(Hello{.purpose = Purpose::requests,
                                          .shape = shape_,
                                          .address = connection_->address(),
                                          .token = options_.secret,
                                          .rkey = connection_->rkey()});
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_connect(id_.get(), &parameters), "rdma_connect");
}

void Lane::established(const rdma_cm_event &event) {
  const auto welcome = welcome_in(private_data(event));
  if (!welcome || welcome->rejection != Rejection::none)
    throw Error("the server", "its Welcome message is not valid");
  if (event.id == data_id_.get())
    return come_up();
  window_ = std::min(welcome->window, shape_.window);
  if (window_ == 0)
    throw Error("the server", "its Welcome message has a window of 0");
  token_ = welcome->token;
  connection_->set_peer(welcome->address, welcome->rkey);
  if (shape_.long_responses == 0)
    return come_up();
  resolve(data_id_);
}

// The same protection domain: the keys of the response buffers are good for what comes by this
// queue pair.
void Lane::join_data() {
  set_ack_timeout(data_id_.get());
  connection_->add_data_connection(data_id_.get());
  const HelloBytes bytes = to_bytes(
      Hello{.purpose = Purpose::data, .shape = {}, .address = 0, .token = token_, .rkey = 0});
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_connect(data_id_.get(), &parameters), "rdma_connect");
}

void Lane::come_up() {
  why_.clear();
  state_ = State::up;
  up_since_ = Clock::now();
  silent_ticks_ = 0;
  deadline_ = up_since_ + tick;
  owner_.came_up(*this);
  options_.log(Level::info, "connected to " + address_of_server_.host);
}

void Lane::on_cm_event(const rdma_cm_event &event) {
  const bool is_data = event.id == data_id_.get();
  if (is_broken_ || (event.id != id_.get() && !is_data))
    return; // ignores an event of an attempt that has been given up
  try_to([&] {
    switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      check_errno(rdma_resolve_route(event.id, static_cast<int>(options_.connect_within.count())),
                  "rdma_resolve_route");
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      is_data ? join_data() : route_resolved();
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      established(event);
      break;
    case RDMA_CM_EVENT_REJECTED:
      if (const auto welcome = welcome_in(private_data(event)))
        throw Error("the server rejects", words_for(welcome->rejection));
      if (!has_been_up())
        check_cm_event(event, RDMA_CM_EVENT_ESTABLISHED);
      [[fallthrough]]; // a server that closes before it has the last packet of connecting sends REJ
    case RDMA_CM_EVENT_DISCONNECTED:
      throw Error("the server", "it has closed the connection");
    default:
      check_cm_event(event, RDMA_CM_EVENT_ESTABLISHED);
    }
    return true;
  });
}

// ---- requests and what answers them

void Lane::put_long(const Header &header, std::span<const std::byte> bytes,
                    const ResponseBuffer &buffer) {
  std::array<std::byte, ResponseBuffer::bytes> wire;
  to_wire(wire, buffer);
  connection_->put(header, wire, bytes);
  ++under_way_;
  ++long_under_way_;
}

void Lane::cancel(uint64_t id) {
  if (connection_ && !is_broken_ && connection_->has_room(1))
    connection_->put({.id = id, .kind = Kind::cancel}, {});
}

// [buffers-of]
std::optional<ResponseBuffer> Lane::buffers_of(uint16_t worker, const std::shared_ptr<Area> &area) {
  Buffers &buffers = buffers_[worker];
  if (buffers.area == area && buffers.region)
    return ResponseBuffer{.address = reinterpret_cast<uintptr_t>(buffers.region->addr),
                          .rkey = buffers.region->rkey,
                          .length = shape_.largest};
  if (background_pending_) // one after the other
    return std::nullopt;
  buffers.region.reset(); // drops the region of an earlier worker with this number
  buffers.area = area;
  const auto region = std::make_shared<unique_mr>();
  start_background_work(
      [this, pd = connection_->pd(), area, region] {
        try {
          *region = reg_mr(pd, area->response_buffers().data(), area->response_buffers().size(),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        } catch (const Error &error) { // the other workers keep the connection
          options_.log(Level::warning,
                       std::string("a worker gets no long responses: ") + error.what());
        }
      },
      [this, worker, area, region] {
        const auto its = buffers_.find(worker);
        if (its == buffers_.end() || its->second.area != area) // the worker has left
          return region->reset();
        its->second.region = std::move(*region);
        its->second.has_failed = !its->second.region;
      });
  return std::nullopt;
}
// [buffers-of]

bool Lane::take_registration_failure(uint16_t worker) {
  const auto buffers = buffers_.find(worker);
  return buffers != buffers_.end() && std::exchange(buffers->second.has_failed, false);
}

bool Lane::take() {
  return connection_ && !is_broken_ && try_to([this] {
           const bool has_taken = connection_->take(
               [this](const Header &header, std::span<const std::byte> bytes) {
                 message(header, bytes);
               },
               [] { return true; });
           has_heard_ |= has_taken;
           return has_taken;
         });
}

void Lane::message(const Header &header, std::span<const std::byte> bytes) {
  switch (header.kind) {
  case Kind::alive:
    return;
  case Kind::pong:
    if (pings_ == 0)
      throw Error("the server's message", "it answers no ping");
    if (--pings_ == 0 && is_leaving_)
      throw Error("the server", why_);
    return;
  case Kind::closing: // no more requests; what is under way will be answered
    if (state_ == State::up) {
      state_ = State::draining;
      why_ = "the server is about to end";
      owner_.went_down(*this);
    }
    return;
  case Kind::response:
  case Kind::long_response:
  case Kind::failure:
  case Kind::answer_too_long:
  case Kind::expired:
    if (const auto wanted = owner_.answered(*this, header, bytes)) {
      --under_way_;
      long_under_way_ -= *wanted == Want::long_response;
      return;
    }
    if (answers_given_up(header))
      return;
    throw Error("the server's answer", "it belongs to no request");
  default:
    throw Error("the server's message", "it is of an unknown kind");
  }
}

bool Lane::answers_given_up(const Header &header) {
  const auto its = given_up_.find(RequestId::unpacked(header.id).worker);
  if (its == given_up_.end() || header.kind == Kind::long_response ||
      its->second.erase(header.id) == 0)
    return false;
  if (its->second.empty())
    given_up_.erase(its);
  --under_way_;
  return true;
}

bool Lane::post() {
  return connection_ && !is_broken_ && try_to([this] {
           if (state_ == State::draining && under_way_ == 0 && !is_leaving_)
             is_leaving_ = ping(); // its answer comes after all that was sent before has been taken
           return connection_->post();
         });
}

// @return false if there is no room
bool Lane::ping() {
  if (!connection_->has_room(1))
    return false;
  connection_->put({.kind = Kind::ping}, {});
  ++pings_;
  return true;
}

bool Lane::arm() {
  return !connection_ || is_broken_ || !try_to([this] { return !connection_->arm(); });
}

// ---- its end

void Lane::check_deadlines() {
  const auto now = Clock::now();
  if (now < deadline_ || is_broken_)
    return;
  deadline_ = now + tick;
  try_to([&] {
    if (state_ == State::resting)
      begin();
    else if (has_been_up())
      probe_peer();
    else
      throw Error("the server",
                  "no answer within " + std::to_string(options_.connect_within.count()) + " ms");
    return true;
  });
}

// A host that has died says nothing, and a process that is stopped neither. So a server that has
// said nothing for a while is asked, and its loop must answer.
void Lane::probe_peer() {
  if (std::exchange(has_heard_, false)) {
    silent_ticks_ = 0;
    return;
  }
  // Ticks are counted, and no clock is read: this process may have been stopped itself.
  if (++silent_ticks_ * tick > options_.peer_timeout)
    throw Error("the server",
                "it has been silent for " + std::to_string(options_.peer_timeout.count()) + " ms");
  ping();
  connection_->post();
}

// Ends the use of the connection: nothing more is sent. take_down() destroys it later, because an
// rdma_cm event that may have led here belongs to the id, which cannot go before the event has been
// acknowledged.
void Lane::lose(const std::string &why) {
  if (std::exchange(is_broken_, true))
    return;
  if (std::exchange(why_, why) != why) // once, however often it tries again
    options_.log(Level::warning, "the connection to " + address_of_server_.host + ": " + why);
  const auto now = Clock::now();
  if (has_been_up() && now - up_since_ >= long_enough)
    backoff_.reset();
  deadline_ = now + backoff_.next();
  if (std::exchange(state_, State::resting) == State::up)
    owner_.went_down(*this);
  if (!background_pending_)
    loop_.send([this] { take_down(); });
}

// Destroys the queue pairs, and then reports their requests as lost: as long as there is a queue
// pair, the server may write a response.
void Lane::take_down() {
  if (!is_broken_ || background_pending_)
    return;
  if (connection_)
    loop_.forget(connection_->fd());
  leave_channel({id_.get(), data_id_.get()}, connection_.get());
  struct Gone { // if the work is dropped, the destructor goes from the last member to the first
    unique_cm_id id, data_id;
    std::unique_ptr<Connection> connection;
    std::map<uint16_t, Buffers> buffers;
  };
  const auto gone = std::make_shared<Gone>(Gone{
      std::move(id_), std::move(data_id_), std::move(connection_), std::exchange(buffers_, {})});
  start_background_work(
      [gone] {
        if (gone->connection)
          gone->connection->destroy_queue_pairs();
        gone->buffers.clear();
        gone->connection.reset();
        gone->data_id.reset();
        gone->id.reset();
      },
      [this] {
        is_broken_ = false;
        window_ = under_way_ = long_under_way_ = pings_ = 0;
        is_leaving_ = false;
        given_up_.clear();
        owner_.lost(*this);
      });
}

} // namespace rdmashared

// How a server makes the session of a client, and takes it down.
#include "server_loop.hpp"

#include <rdmacommon/check.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace rdmashared {

using namespace rdmacommon;

namespace {

std::string host_of(const sockaddr *address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t length =
      address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "unknown";
  return text.data();
}

// A client that knows it can have a session's data sent to itself.
uint64_t secret() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    throw_errno(errno, "getrandom");
  return number;
}

void reject(rdma_cm_id *id, Refusal why) {
  const WelcomeBytes no = refused(why);
  rdma_reject(id, &no, sizeof no); // fails if the client has gone
}

} // namespace

void ServerLoop::take_request(rdma_cm_event &event) {
  unique_cm_id id(event.id);
  id->context = nullptr; // it has the listener's
  Refusal why = Refusal::none;
  const auto hello = hello_in(private_data(event), why);
  try {
    if (why == Refusal::none)
      why = open(id, *hello);
  } catch (const std::exception &error) {
    log(std::string("a client could not be accepted: ") + error.what());
    why = Refusal::unable;
  }
  if (why == Refusal::none)
    return;
  ++rejected_;
  if (id)
    reject(id.get(), why);
}

// [open]
Refusal ServerLoop::open(unique_cm_id &id, const Hello &hello) {
  if (stops_seen_ > 0)
    return Refusal::closing;
  if (hello.purpose == Purpose::data) {
    const auto whose = std::ranges::find(sessions_, hello.token, &Session::token);
    if (whose == sessions_.end() || whose->is_closed())
      return Refusal::stranger;
    whose->accept_data(std::move(id));
    return Refusal::none;
  }
  if (sessions_.size() + opening_ >= options_.connections ||
      (options_.clients > 0 && opened_ + opening_ >= options_.clients))
    return Refusal::full;
  const uint64_t memory = memory_for(hello.shape);
  if (hello.shape.slots > options_.slots || memory > options_.memory)
    return Refusal::too_large;
  if (!budget_->take(memory))
    return Refusal::memory;
  // Making so much memory, and pinning it, takes long. The other clients' requests do not wait for that.
  const auto share = std::make_shared<Share>(budget_, memory);
  const auto opening = std::make_shared<Opening>(Opening{std::move(id), hello, {}});
  errands_.send(
      [this, opening, share, since = Clock::now()] {
        if (Clock::now() - since > options_.connect_within) // the client has given up
          throw Error("a client", "its request has waited too long", Where::here());
        make(*opening, std::move(*share));
      },
      [this, opening](const std::exception_ptr &failure) { opened(*opening, failure); });
  ++opening_;
  return Refusal::none;
}
// [open]

// By the errands' thread.
void ServerLoop::make(Opening &opening, Share share) {
  Shape shape = opening.hello.shape;
  shape.window = std::min(shape.window, options_.window);
  Client client{.connection = ++connections_,
                .host = host_of(rdma_get_peer_addr(opening.id.get()))};
  const auto work = std::make_shared<Work>(shape, std::move(client), std::move(share), wake_);
  if (options_.new_client)
    work->state = options_.new_client(work->client);
  opening.made.emplace_back(std::move(opening.id), opening.hello, work, secret(), options_.group,
                            handler_, pool_, stats_);
}

// [opened]
void ServerLoop::opened(Opening &opening, const std::exception_ptr &failure) {
  --opening_;
  Refusal why = Refusal::unable;
  try {
    if (failure)
      std::rethrow_exception(failure);
    if (stops_seen_ > 0) {
      why = Refusal::closing;
      throw Error("the server", words_for(why), Where::here());
    }
    Session &session = opening.made.front();
    poller_.watch(session.fd(), {.ptr = &session});
    session.accept();
    sessions_.splice(sessions_.end(), opening.made);
    ++opened_;
  } catch (...) { // ServerOptions::new_client can throw anything
    log("a client could not be accepted: " + words_of(std::current_exception()));
    ++rejected_;
    if (opening.id)
      reject(opening.id.get(), why);
    else if (!opening.made.empty()) {
      reject(opening.made.front().id(), why);
      take_down(opening.made, opening.made.begin());
    }
  }
}
// [opened]

void ServerLoop::bury() {
  for (auto next = sessions_.begin(); next != sessions_.end();)
    if (const auto session = next++; session->is_closed()) {
      (session->was_dropped ? dropped_ : served_) += 1;
      take_down(sessions_, session);
    }
}

// Takes as long as making it, so the same thread does it. No event leads to the session any more.
void ServerLoop::take_down(std::list<Session> &whose, std::list<Session>::iterator session) {
  poller_.forget(session->fd());
  session->leave_channel();
  const auto gone = std::make_shared<std::list<Session>>();
  gone->splice(gone->end(), whose, session);
  errands_.send([gone] { gone->clear(); }, [](const std::exception_ptr &) {});
}

} // namespace rdmashared

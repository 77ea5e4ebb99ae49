// How a server makes the session of a client, and takes it down.

#include "server.hpp"

#include <rdmacommon/check.hpp>

#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

namespace shared_client {

using namespace rdmacommon;

namespace {

// Whoever knows it can have a session's data sent to itself.
uint64_t secret() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    throw_errno(errno, "getrandom");
  return number;
}

} // namespace

void Server::take_request(rdma_cm_event &event) {
  unique_cm_id id(event.id);
  id->context = nullptr; // it has the listener's
  Refusal why = Refusal::none;
  const auto hello = hello_in(private_data(event), why);
  try {
    if (why == Refusal::none)
      why = open(id, *hello);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "a client could not be accepted: %s\n", error.what());
    why = Refusal::full;
  }
  if (why == Refusal::none)
    return;
  ++rejected_;
  if (id) {
    const WelcomeBytes no = refused(why);
    rdma_reject(id.get(), &no, sizeof no); // the client may have gone
  }
}

// [open]
Refusal Server::open(unique_cm_id &id, const Hello &hello) {
  if (is_closing_)
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
  if (memory > options_.total_memory - memory_)
    return Refusal::memory;
  // To make so much memory, and to pin it, takes long. The other clients' requests do not wait for that.
  const auto opening =
      std::make_shared<Opening>(Opening{std::move(id), hello, secret(), memory, {}, {}});
  errands_.send(
      [this, opening, since = Clock::now()] {
        if (Clock::now() - since > options_.step) // the client has given up
          throw Error("a client", "its request has waited too long", Where::here());
        opening->made.emplace_back(std::move(opening->id), opening->hello, opening->token,
                                   options_.session, handler_, pool_, stats_);
      },
      [this, opening](std::exception_ptr failure) {
        opening->failure = std::move(failure);
        opened(*opening);
      });
  memory_ += memory;
  ++opening_;
  return Refusal::none;
}
// [open]

// [opened]
void Server::opened(Opening &opening) {
  --opening_;
  try {
    if (opening.failure)
      std::rethrow_exception(opening.failure);
    Session &session = opening.made.front();
    if (is_closing_) {
      session.reject(Refusal::closing);
      throw Error("the server", words_for(Refusal::closing), Where::here());
    }
    watch(session.fd(), &session);
    session.accept();
    sessions_.splice(sessions_.end(), opening.made);
    ++opened_;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "a client could not be accepted: %s\n", error.what());
    ++rejected_;
    if (opening.made.empty())
      memory_ -= opening.memory;
    else
      take_down(opening.made, opening.made.begin()); // the client is rejected, if it is still there
  }
}
// [opened]

void Server::bury() {
  for (auto next = sessions_.begin(); next != sessions_.end();)
    if (const auto session = next++; session->is_gone()) {
      (session->was_dropped ? dropped_ : served_) += 1;
      take_down(sessions_, session);
    }
}

// Takes as long as making it, so the same thread does it. No event leads to the session any more.
void Server::take_down(std::list<Session> &whose, std::list<Session>::iterator session) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session->fd(), nullptr); // fails if it was not watched yet
  session->leave_channel();
  const uint64_t memory = session->memory();
  const auto gone = std::make_shared<std::list<Session>>();
  gone->splice(gone->end(), whose, session);
  errands_.send([gone] { gone->clear(); },
                [this, memory](const std::exception_ptr &) { memory_ -= memory; });
}

} // namespace shared_client

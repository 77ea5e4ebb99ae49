// SPDX-License-Identifier: MIT
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

// A client that knows it can have a session's data sent to itself. So that a data connection finds
// its session, the token also says by which thread that is served.
uint64_t secret(uint32_t thread, size_t threads) {
  uint64_t number = 0;
  do
    if (getrandom(&number, sizeof number, 0) != sizeof number)
      throw_errno(errno, "getrandom");
  while (number % threads != thread);
  return number;
}

void reject(rdma_cm_id *id, Refusal why) {
  const WelcomeBytes no = refused(why);
  rdma_reject(id, &no, sizeof no); // fails if the client has gone
}

} // namespace

// Accepts it, or says why not.
void ServerLoop::answer(unique_cm_id &id, const std::function<Refusal()> &accept) {
  Refusal why = Refusal::unable;
  try {
    why = accept();
  } catch (const std::exception &error) {
    log(std::string("a client could not be accepted: ") + error.what());
  }
  if (why == Refusal::none)
    return;
  ++rejected_;
  if (id)
    reject(id.get(), why);
}

void ServerLoop::take_request(rdma_cm_event &event) {
  unique_cm_id id(event.id);
  id->context = nullptr; // it has the listener's
  Refusal why = Refusal::none;
  const auto hello = hello_in(private_data(event), why);
  answer(id, [&] { return why == Refusal::none ? open(id, *hello) : why; });
}

// [open]
Refusal ServerLoop::open(unique_cm_id &id, const Hello &hello) {
  if (stops_seen_ > 0)
    return Refusal::closing;
  if (hello.purpose == Purpose::data) {
    open_data(id, hello.token);
    return Refusal::none;
  }
  if (sessions() >= options_.connections ||
      (options_.clients > 0 && opened_ + opening_ >= options_.clients))
    return Refusal::full;
  const uint64_t memory = memory_for(hello.shape);
  if (hello.shape.slots > options_.slots || memory > options_.memory)
    return Refusal::too_large;
  if (!budget_->take(memory))
    return Refusal::memory;
  // Making so much memory, and pinning it, takes long. The other clients' requests do not wait for
  // that.
  const auto share = std::make_shared<Share>(budget_, memory);
  const auto load = [](const std::unique_ptr<Place> &place) { return place->sessions; };
  Place &place = **std::ranges::min_element(places_, {}, load);
  const auto opening = std::make_shared<Opening>(Opening{std::move(id), hello, place, {}});
  errands_.send(
      [this, opening, share, since = Clock::now()] {
        if (stops_ > 0)
          throw Error("the server", words_for(Refusal::closing));
        if (Clock::now() - since > options_.connect_within) // the client has given up
          throw Error("a client", "its request has waited too long");
        make(*opening, std::move(*share));
      },
      [this, opening](const std::exception_ptr &failure) {
        opening->place.loop->send([this, opening, failure, is_closing = stops_ > 0] {
          begin(*opening, failure, is_closing);
        });
      });
  ++place.sessions;
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
  SessionLoop &loop = *opening.place.loop;
  const auto memory =
      std::make_shared<SessionMemory>(shape, std::move(client), std::move(share), loop.wake());
  if (options_.new_client)
    memory->state = options_.new_client(memory->client);
  opening.made.emplace_back(opening.id, opening.hello, memory,
                            secret(opening.place.number, places_.size()), options_.group, handler_,
                            loop.stats());
}

// [begin-session]
// By the thread that is to serve it.
void ServerLoop::begin(Opening &opening, const std::exception_ptr &failure, bool is_closing) {
  const Refusal why = is_closing ? Refusal::closing : Refusal::unable;
  SessionLoop &loop = *opening.place.loop;
  bool has_failed = false;
  try {
    if (failure)
      std::rethrow_exception(failure);
    if (is_closing)
      throw Error("the server", words_for(why));
    loop.adopt(opening.made);
  } catch (...) { // ServerOptions::new_client can throw anything
    has_failed = true;
    log("a client could not be accepted: " + words_of(std::current_exception()));
    ++rejected_;
    if (opening.id)
      reject(opening.id.get(), why);
    else if (!opening.made.empty()) {
      reject(opening.made.front().id(), why);
      loop.take_down(opening.made, opening.made.begin());
    }
  }
  first().send([this, &place = opening.place, has_failed] { has_begun(place, has_failed); });
}
// [begin-session]

// The first thread counts, so it alone knows when there is room, and when all have gone.
void ServerLoop::has_begun(Place &place, bool has_failed) {
  --opening_;
  opened_ += !has_failed;
  place.sessions -= has_failed;
  look_whether_to_end();
}

// By the thread that has served it.
void ServerLoop::has_gone(Place &place, bool was_dropped) {
  first().send([this, &place, was_dropped] {
    (was_dropped ? dropped_ : served_) += 1;
    --place.sessions;
    look_whether_to_end();
  });
}

// The session's thread accepts it, if there is such a session.
void ServerLoop::open_data(unique_cm_id &id, uint64_t token) {
  SessionLoop &loop = *places_[token % places_.size()]->loop;
  const auto its = std::make_shared<unique_cm_id>(std::move(id));
  loop.send(
      [this, its, token, &loop] { answer(*its, [&] { return loop.accept_data(token, *its); }); });
}

} // namespace rdmashared

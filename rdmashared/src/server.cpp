// SPDX-License-Identifier: MIT
// Layer: API. A Server: its threads. The first one takes the requests for connections, and gives
// each client to the thread that has the fewest.
#include "rdmashared/server.hpp"

#include "session_loop.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <exception>
#include <map>
#include <span>
#include <string_view>
#include <thread>
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

// A client that knows it can have a session's responses sent to itself. So that a data connection
// finds its session, the token also says which thread serves that.
uint64_t secret(size_t thread, size_t threads) {
  uint64_t number = 0;
  do
    if (getrandom(&number, sizeof number, 0) != sizeof number)
      throw_errno(errno, "getrandom");
  while (number % threads != thread);
  return number;
}

void reject(rdma_cm_id *id, Rejection why) {
  const WelcomeBytes no = rejecting_welcome(why);
  rdma_reject(id, &no, sizeof no); // fails if the client has gone
}

} // namespace

class ServerThreads {
public:
  ServerThreads(const ServerOptions &options, RequestHandler handler);
  // A client on its way to another loop has an id of the first loop's event channel. It must go
  // before that does.
  ~ServerThreads() {
    for (const auto &thread : threads_)
      thread->loop->loop().close();
  }
  ServerThreads(const ServerThreads &) = delete;
  ServerThreads &operator=(const ServerThreads &) = delete;

private:
  friend class Server;
  friend void serve_until_signal(Server &server);

  // One of the threads.
  struct ServingThread {
    size_t number;
    std::unique_ptr<SessionLoop> loop;
    uint32_t sessions; // sessions that it has, or will have; the first thread counts them
  };
  // A client on its way to a thread.
  struct Opening {
    unique_cm_id id;
    Hello hello;
    ServingThread &thread;
    Client client;
    std::list<Session> made; // the one session, once it is made
  };

  RequestHandler with_health(RequestHandler handler);
  Loop &first() { return threads_.front()->loop->loop(); }
  void take_request(rdma_cm_event &event);
  void answer(unique_cm_id &id, const std::function<Rejection()> &accept);
  Rejection open(unique_cm_id &id, const Hello &hello);
  void open_data(unique_cm_id &id, uint64_t token);
  void begin(Opening &opening, const std::exception_ptr &failure);
  void on_settled(const std::string &host);
  void on_session_closed(ServingThread &thread, bool was_dropped, bool gave_up);
  uint32_t sessions() const;
  void check_stop_request();
  void check_finished();

  const ServerOptions options_;
  const RequestHandler handler_;
  Event stop_;
  std::atomic<uint32_t> stops_{0}; // calls of stop()
  std::vector<std::unique_ptr<ServingThread>> threads_;
  std::shared_ptr<Budget> budget_;
  unique_cm_id listener_;
  uint32_t stops_seen_ = 0, opening_ = 0, opened_ = 0, ended_ = 0;
  std::map<std::string, uint32_t> half_open_; // connections of each host that are on the way
  std::atomic<uint64_t> connections_{0};      // ever
  std::atomic<uint32_t> served_{0}, dropped_{0}, rejected_{0};
  Pool pool_;       // runs the handlers
  Pool background_; // makes sessions, and takes them down
};

RequestHandler ServerThreads::with_health(RequestHandler handler) {
  if (!handler || !options_.health_service)
    return handler;
  return [this, its = std::move(handler)](Request &&request) {
    if (request.service() != *options_.health_service)
      return its(std::move(request));
    const std::string_view state = stops_ > 0 ? "closing" : "serving";
    request.reply(std::as_bytes(std::span(state)));
  };
}

ServerThreads::ServerThreads(const ServerOptions &options, RequestHandler handler)
    : options_(with_log(options)), handler_(with_health(std::move(handler))),
      pool_(options.handler_threads, options.waiting), background_(1) {
  check_options("ServerOptions",
                {{"max_clients", options.max_clients, 1, UINT32_MAX},
                 {"window", options.window, 1, UINT32_MAX},
                 {"group", options.group, 1, max_run},
                 {"threads", options.threads, 1, UINT32_MAX},
                 {"memory", static_cast<int64_t>(options.memory), 1, INT64_MAX},
                 {"total_memory", static_cast<int64_t>(options.total_memory), 1, INT64_MAX},
                 {"connect_within", options.connect_within.count(), 1, a_day},
                 {"half_open", options.half_open, 1, UINT32_MAX}});
  if (!handler_)
    throw Error("a server", "its handler is empty");
  for (uint32_t i = 0; i < options.threads; ++i) {
    threads_.push_back(
        std::make_unique<ServingThread>(ServingThread{.number = i, .loop = {}, .sessions = 0}));
    ServingThread &thread = *threads_.back();
    thread.loop = std::make_unique<SessionLoop>(
        options_, handler_, pool_, background_,
        [this](const std::string &host) { first().send([this, host] { on_settled(host); }); },
        [this, &thread](const Session &session) {
          first().send(
              [this, &thread, was_dropped = session.was_dropped, gave_up = session.gave_up] {
                on_session_closed(thread, was_dropped, gave_up);
              });
        });
  }
  std::vector<std::shared_ptr<Answers>> loops;
  for (const auto &thread : threads_)
    loops.push_back(thread->loop->answers());
  budget_ = std::make_shared<Budget>(options.total_memory, std::move(loops));
  CmAddress address = cm_address(options.host, options.port);
  listener_ =
      cm_listen(threads_.front()->loop->channel(), address, static_cast<int>(options.max_clients));
  threads_.front()->loop->on_request([this](rdma_cm_event &event) { take_request(event); });
  first().watch(stop_.fd(), [this] {
    stop_.take_back();
    check_stop_request();
  });
}

uint32_t ServerThreads::sessions() const {
  uint32_t all = 0;
  for (const auto &thread : threads_)
    all += thread->sessions;
  return all;
}

// ---- clients

// Accepts it, or says why not.
void ServerThreads::answer(unique_cm_id &id, const std::function<Rejection()> &accept) {
  Rejection why = Rejection::unable;
  try {
    why = accept();
  } catch (const std::exception &error) {
    options_.log(Level::warning, std::string("a client could not be accepted: ") + error.what());
  }
  if (why == Rejection::none)
    return;
  ++rejected_;
  if (id)
    reject(id.get(), why);
}

void ServerThreads::take_request(rdma_cm_event &event) {
  unique_cm_id id(event.id);
  id->context = nullptr; // it has the listener's
  Rejection why = Rejection::none;
  const auto hello = hello_in(private_data(event), why);
  answer(id, [&] { return why == Rejection::none ? open(id, *hello) : why; });
}

Rejection ServerThreads::open(unique_cm_id &id, const Hello &hello) {
  if (stops_seen_ > 0)
    return Rejection::closing;
  if (hello.purpose == Purpose::data) {
    open_data(id, hello.token);
    return Rejection::none;
  }
  if (sessions() >= options_.max_clients ||
      (options_.exit_after > 0 && opened_ + opening_ >= options_.exit_after))
    return Rejection::full;
  const uint64_t memory = memory_for(hello.shape);
  if (hello.shape.slots > options_.slots || memory > options_.memory)
    return Rejection::too_large;
  Client client{.connection = ++connections_,
                .host = host_of(rdma_get_peer_addr(id.get())),
                .secret = hello.token};
  if (const auto its = half_open_.find(client.host);
      its != half_open_.end() && its->second >= options_.half_open)
    return Rejection::full;
  if (!budget_->take(memory))
    return Rejection::memory;
  ++half_open_[client.host];
  // Making so much memory, and pinning it, takes long. The other clients' requests do not wait for
  // that. The program is asked first.
  const auto load = [](const std::unique_ptr<ServingThread> &thread) { return thread->sessions; };
  ServingThread &thread = **std::ranges::min_element(threads_, {}, load);
  const auto opening = std::make_shared<Opening>(Opening{.id = std::move(id),
                                                         .hello = hello,
                                                         .thread = thread,
                                                         .client = std::move(client),
                                                         .made = {}});
  ++thread.sessions;
  ++opening_;
  run_in_background(
      background_, thread.loop->loop(),
      [this, opening, memory, since = Clock::now()] {
        Shape shape = opening->hello.shape;
        const auto state = std::make_shared<SessionState>(
            opening->client, opening->thread.loop->answers(), budget_, memory,
            options_.memory - memory, shape.largest);
        if (stops_ > 0)
          throw Error("the server", words_for(Rejection::closing));
        if (Clock::now() - since > options_.connect_within) // the client has given up
          throw Error("a client", "its request has waited too long");
        if (options_.new_client)
          state->state = options_.new_client(state->client);
        shape.window = std::min(shape.window, options_.window);
        opening->made.emplace_back(opening->id, opening->hello, shape, state,
                                   secret(opening->thread.number, threads_.size()), options_.group,
                                   opening->thread.loop->stats());
      },
      [this, opening](const std::exception_ptr &failure) { begin(*opening, failure); });
  return Rejection::none;
}

// Begins to serve a client. The thread that will serve it calls this.
void ServerThreads::begin(Opening &opening, const std::exception_ptr &failure) {
  const Rejection why = stops_ > 0 ? Rejection::closing : Rejection::unable;
  SessionLoop &loop = *opening.thread.loop;
  bool has_failed = false;
  try {
    if (failure)
      std::rethrow_exception(failure);
    if (stops_ > 0)
      throw Error("the server", words_for(why));
    loop.adopt(opening.made);
  } catch (...) { // ServerOptions::new_client can throw anything
    has_failed = true;
    options_.log(Level::warning,
                 "a client could not be accepted: " + words_of(std::current_exception()));
    ++rejected_;
    if (opening.id)
      reject(opening.id.get(), why);
    else if (!opening.made.empty()) {
      reject(opening.made.front().id(), why);
      loop.take_down(opening.made, opening.made.begin());
    }
  }
  // The first thread counts, so it alone knows when there is room, and when all have gone.
  first().send([this, &thread = opening.thread, host = opening.client.host, has_failed] {
    --opening_;
    if (has_failed)
      on_settled(host);
    opened_ += !has_failed;
    thread.sessions -= has_failed;
    check_finished();
  });
}

void ServerThreads::open_data(unique_cm_id &id, uint64_t token) {
  SessionLoop &loop = *threads_[token % threads_.size()]->loop;
  loop.loop().send([this, &loop, token, its = std::make_shared<unique_cm_id>(std::move(id))] {
    answer(*its, [&] { return loop.accept_data(token, *its); });
  });
}

void ServerThreads::on_settled(const std::string &host) {
  if (const auto its = half_open_.find(host); its != half_open_.end() && --its->second == 0)
    half_open_.erase(its);
}

// A client that has not finished connecting may come again, so it does not count for exit_after.
void ServerThreads::on_session_closed(ServingThread &thread, bool was_dropped, bool gave_up) {
  --thread.sessions;
  ++(was_dropped ? dropped_ : served_);
  gave_up ? --opened_ : ++ended_;
  check_finished();
}

void ServerThreads::check_finished() {
  const bool enough = options_.exit_after > 0 && ended_ >= options_.exit_after;
  if ((stops_seen_ > 0 || enough) && sessions() == 0)
    threads_.front()->loop->end();
}

void ServerThreads::check_stop_request() {
  const uint32_t stops = stops_.load();
  if (stops == stops_seen_)
    return;
  const auto when = stops == 1 ? deadline_in(options_.grace) : Clock::now();
  if (std::exchange(stops_seen_, stops) == 0)
    options_.log(Level::info,
                 "closing: " + std::to_string(sessions() - opening_) + " clients may finish");
  for (const auto &thread : threads_) {
    SessionLoop &loop = *thread->loop;
    loop.loop().send([&loop, when] { loop.finish_by(when); });
  }
  check_finished();
}

// ---- what the header declares

Server::Server(const ServerOptions &options, RequestHandler handler)
    : threads_(std::make_unique<ServerThreads>(options, std::move(handler))) {}

Server::Server(const ServerOptions &options, Handler handler)
    : Server(options, handler ? RequestHandler([its = std::move(handler)](Request &&request) {
               request.reply(its(request.bytes(), request.response_space()));
             })
                              : nullptr) {}

Server::~Server() = default;

uint16_t Server::port() const {
  return ntohs(rdma_get_src_port(threads_->listener_.get()));
}

void Server::run() {
  std::vector<std::jthread> others; // wait for their end
  const auto end = [&] {
    for (const auto &thread : threads_->threads_)
      thread->loop->loop().send([its = thread->loop.get()] { its->end(); });
    others.clear();
  };
  try {
    for (const auto &thread : std::span(threads_->threads_).subspan(1)) {
      const NoSignals no_signals;
      others.emplace_back([this, its = thread->loop.get()] {
        try {
          its->run();
        } catch (...) { // comes out of the first thread's run()
          threads_->first().send(
              [failure = std::current_exception()] { std::rethrow_exception(failure); });
        }
      });
    }
    threads_->check_stop_request(); // before it has begun
    threads_->threads_.front()->loop->run();
  } catch (...) {
    end();
    throw;
  }
  end();
}

void Server::stop() noexcept {
  ++threads_->stops_;
  threads_->stop_.ring();
}

Metrics Server::metrics() const {
  using enum Metrics::Type;
  Metrics all;
  std::vector<const Stats *> stats;
  for (const auto &thread : threads_->threads_) {
    SessionLoop &loop = *thread->loop;
    loop.loop().add_to(all, [&loop](Metrics &its) { loop.add_to(its); });
    stats.push_back(&loop.stats());
  }
  all.add("clients_served_total", "Connections that ended in order.", counter, served());
  all.add("clients_dropped_total", "Connections closed for a mistake.", counter, dropped());
  all.add("clients_rejected_total", "Requests for a connection that were rejected.", counter,
          rejected());
  all.add("memory_left_bytes", "What is left of ServerOptions::total_memory.", gauge,
          static_cast<double>(threads_->budget_->left()));
  add_to(all, stats, "Time for which requests waited for their handler, of 1 in 16.",
         "Time that handlers took, of 1 in 16.");
  return all;
}

Counts Server::counts() const {
  Counts all;
  for (const auto &thread : threads_->threads_)
    add(all, thread->loop->stats());
  return all;
}

uint32_t Server::served() const {
  return threads_->served_;
}

uint32_t Server::dropped() const {
  return threads_->dropped_;
}

uint32_t Server::rejected() const {
  return threads_->rejected_;
}

void serve_until_signal(Server &server) {
  Loop &loop = server.threads_->first();
  sigset_t ends, before;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  const File signals(check_errno(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd"));
  loop.watch(signals.get(), [&] {
    signalfd_siginfo which;
    if (read(signals.get(), &which, sizeof which) == sizeof which)
      server.stop();
  });
  pthread_sigmask(SIG_BLOCK, &ends, &before);
  const auto end = [&] {
    loop.forget(signals.get());
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  };
  try {
    server.run();
  } catch (...) {
    end();
    throw;
  }
  end();
}

} // namespace rdmashared

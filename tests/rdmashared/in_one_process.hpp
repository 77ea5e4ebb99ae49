// SPDX-License-Identifier: MIT
// For the tests of rdmashared with a device: servers and senders of one process, and waits that are
// for events.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmashared/caller.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace in_one_process {

using namespace rdmashared;
using rdmacommon::Error;

// The longest wait of a test; a longer one is a failure. A busy machine takes long.
constexpr std::chrono::seconds time_limit(60);

extern std::string address; // the device's address, from the command line

// Starts this program once more: it joins the sender, asks `text`, and ends.
// @param server RequestOptions::server
// @return its process id
pid_t start_joined(const std::string &name, const std::string &text, uint32_t server = 0);
int status_of(pid_t process); // waits for its end

// From the threads of a server, or a sender, to the test.
template <typename Thing> class Queue {
public:
  void push(Thing thing) {
    {
      const std::lock_guard lock(mutex_);
      things_.push_back(std::move(thing));
    }
    has_come_.notify_all();
  }
  // Waits for one. @throws Error if none comes
  Thing pop() {
    std::unique_lock lock(mutex_);
    if (!has_come_.wait_for(lock, time_limit, [this] { return !things_.empty(); }))
      throw Error("the test", "it waits for something that does not come");
    Thing thing = std::move(things_.front());
    things_.pop_front();
    return thing;
  }
  std::optional<Thing> try_pop() {
    const std::lock_guard lock(mutex_);
    if (things_.empty())
      return std::nullopt;
    std::optional<Thing> thing(std::move(things_.front()));
    things_.pop_front();
    return thing;
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return things_.empty();
  }

private:
  std::mutex mutex_;
  std::condition_variable has_come_;
  std::deque<Thing> things_;
};

using Kept = Queue<Request>;

// A handler that answers nothing.
inline RequestHandler keep_in(Kept &kept) {
  return [&kept](Request &&request) { kept.push(std::move(request)); };
}

// Log lines.
class Lines {
public:
  Log log() {
    return [this](Level, std::string_view line) { lines_.push(std::string(line)); };
  }
  // Waits for one that has these words, and forgets those before it.
  std::string with(std::string_view words) {
    std::string line;
    do
      line = lines_.pop();
    while (line.find(words) == line.npos);
    return line;
  }

private:
  Queue<std::string> lines_;
};

// A server on a port of its own, in a thread of its own.
class Running {
public:
  // @param port 0: any
  template <typename Handler>
  Running(ServerOptions options, Handler handler, uint16_t port = 0)
      : server(with_place(std::move(options), port), std::move(handler)), thread_([this] {
          server.run();
          ended_.push(true);
        }) {}
  ~Running() {
    if (thread_.joinable()) {
      server.stop();
      server.stop(); // whoever is still there
      thread_.join();
    }
  }
  Running(const Running &) = delete;
  Running &operator=(const Running &) = delete;

  ServerAddress where() const { return {.host = address, .port = server.port()}; }
  bool is_running() { return ended_.is_empty(); }
  void wait_for_end() {
    ended_.pop();
    thread_.join();
  }
  pthread_t thread() { return thread_.native_handle(); }

private:
  static ServerOptions with_place(ServerOptions options, uint16_t port) {
    options.host = address;
    options.port = port;
    return options;
  }

public:
  Server server;

private:
  Queue<bool> ended_;
  std::thread thread_;
};

// A sender that is up.
class Connected {
public:
  explicit Connected(SenderOptions options)
      : sender(std::move(options)), caller((sender.wait_connected(time_limit), sender.caller())) {}
  explicit Connected(const Running &server)
      : Connected(SenderOptions{.servers = {server.where()}}) {}

  Sender sender;
  Caller caller;
};

inline std::span<const std::byte> bytes(const std::string &text) {
  return std::as_bytes(std::span(text));
}

inline std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

// Options of a request that is in no hurry.
inline RequestOptions patient(size_t max_response = 0) {
  return {.max_response = max_response, .limit = time_limit};
}

inline std::string ask(Caller &caller, const std::string &words, RequestOptions how = patient()) {
  return text(caller.request(bytes(words), how));
}

inline std::string response_of(Pending &pending) {
  const auto response = pending.wait(time_limit);
  if (!response)
    throw Error("the test", "a response does not come");
  return text(*response);
}

// Requests that a Server or a Sender has seen answered. Counts::messages has its pings, too.
template <typename End> double answered(const End &end) {
  return end.metrics().value("requests_total", "outcome=\"response\"");
}

// Returns the failure of a request, which must fail.
template <typename F> RequestFailed failure_of(F request) {
  try {
    request();
  } catch (const RequestFailed &failure) {
    return failure;
  }
  throw Error("the test", "a request has not failed");
}

// Returns the words that say why a response has no room.
template <typename F> std::string answer_too_long(F request) {
  const RequestFailed failure = failure_of(request);
  if (failure.outcome() != Outcome::answer_too_long || !failure.server_said().empty())
    throw Error("the test", failure.what());
  const std::string said = failure.what(), begins = "the request: its response is too long: ";
  return said.substr(begins.size(), said.rfind(" (") - begins.size());
}

// Returns the words of the error that a wrong use gets.
template <typename F> std::string error_of(F use) {
  try {
    use();
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

} // namespace in_one_process

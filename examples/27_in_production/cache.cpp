// SPDX-License-Identifier: MIT
// A cache for the processes of many hosts. The server keeps the values that were used last. The
// processes of a host reach it over one connection, which one of them has.
#include "cache_protocol.hpp"
#include "log_line.hpp"

#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmashared/sender.hpp>
#include <rdmashared/server.hpp>

#include <chrono>
#include <cstdio>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

using namespace rdmacommon;
using namespace rdmashared;

namespace {

// Handlers run in several threads, so it has a lock.
class Cache {
public:
  explicit Cache(uint64_t most_bytes) : left_(most_bytes) {}

  void put(std::string_view key, std::string_view value) {
    const std::lock_guard lock(mutex_);
    if (const auto old = places_.find(std::string(key)); old != places_.end())
      drop(old->second);
    entries_.push_front({std::string(key), std::string(value)});
    places_[entries_.front().first] = entries_.begin();
    for (left_ -= size(entries_.front()); left_ < 0;)
      drop(std::prev(entries_.end()));
  }

  std::optional<std::string> get(std::string_view key) {
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(std::string(key));
    if (place == places_.end())
      return std::nullopt;
    entries_.splice(entries_.begin(), entries_, place->second); // it was used last
    return place->second->second;
  }

private:
  using Entry = std::pair<std::string, std::string>; // key and value
  static int64_t size(const Entry &entry) {
    return static_cast<int64_t>(entry.first.size() + entry.second.size());
  }
  void drop(std::list<Entry>::iterator entry) {
    left_ += size(*entry);
    places_.erase(entry->first);
    entries_.erase(entry);
  }

  std::mutex mutex_;
  int64_t left_;             // bytes
  std::list<Entry> entries_; // the one that was used last comes first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
};

void serve(const CmOptions &options, uint64_t most_bytes) {
  Cache cache(most_bytes);
  const auto answer = [&](Request &&request) {
    const std::string_view text = text_of(request.bytes());
    if (request.service() == get)
      return request.reply(bytes_of(get_answer(cache.get(text))));
    const auto [key, value] = put_in(text); // throws if it is none: the caller gets the words
    cache.put(key, value);
    request.reply(0);
  };
  Server server({.host = options.host,
                 .port = options.cm_port,
                 .exit_after = 1,
                 .handler_threads = 2,
                 .connect_within = options.timeout,
                 .log = log_line},
                answer);
  std::printf("listening on rdma_cm port %u\n", server.port());
  std::fflush(stdout);
  serve_until_signal(server);
}

// Puts values of its own, and gets them back.
void work(Caller caller, uint32_t number, uint32_t values, const Link &parent) {
  uint32_t hits = 0, right = 0;
  for (uint32_t i = 0; i < values; ++i) {
    const std::string key = std::to_string(number) + '/' + std::to_string(i);
    caller.request(bytes_of(put_request(key, "value of " + key)), {.service = put});
    const auto answer =
        caller.request(bytes_of(key), {.max_response = 1 + longest_value, .service = get});
    const auto value = value_in(text_of(answer));
    hits += value.has_value();
    right += value == "value of " + key;
  }
  parent.send(std::to_string(hits) + " hits, " + std::to_string(right) + " right");
}

void ask(const CmOptions &options, uint32_t processes, uint32_t values) {
  const std::string name = "cache-" + std::to_string(getpid());
  std::vector<std::unique_ptr<Child>> workers; // forked before there is a thread or a device
  for (uint32_t number = 0; number < processes; ++number)
    workers.push_back(std::make_unique<Child>([&, number](const Link &parent) {
      parent.receive(options.timeout); // there is a sender
      work(Caller::join(name, Waiting::adaptive, options.timeout), number, values, parent);
    }));
  Sender sender({.servers = {{.host = options.host, .port = options.cm_port}},
                 .name = name,
                 .connect_within = options.timeout,
                 .log = log_line});
  sender.wait_connected(options.timeout);
  for (const auto &worker : workers)
    worker->link().send("go on");
  for (const auto &worker : workers)
    std::printf("a process: %s\n", worker->link().receive(std::chrono::hours(24)).c_str());
}

void run(int argc, char **argv) {
  CommandLine line{"A cache, and processes of one host that use it."};
  CmOptions options{line, "the server; without it this is the server"};
  uint64_t most_bytes = 1 << 20;
  uint32_t processes = 3, values = 100;
  line.add("--bytes", most_bytes, "that the cache keeps [1 MiB]", 1, uint64_t{1} << 40);
  line.add("--processes", processes, "that use it [3]", 1, 64);
  line.add("--values", values, "that each process puts and gets [100]", 1, 100'000);
  line.parse(argc, argv);
  options.is_server() ? serve(options, most_bytes) : ask(options, processes, values);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, run);
}

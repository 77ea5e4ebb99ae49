// SPDX-License-Identifier: MIT
// 13_cm_many_clients, the server: many clients at a time, in one thread that sleeps in one place.
//
// Lesson:  lessons/13_cm_many_clients.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 13_cm_many_clients
// By hand: many_server --clients 0         serves until SIGTERM
//          many_client --host ADDRESS      the client; so is cm_client of lesson 12, and
//          rping -c -C 100 -a ADDRESS -p 18515

#include "client_connection.hpp"
#include "event_loop.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <unordered_map>

using namespace rdmacommon;

namespace {

struct Settings {
  uint32_t clients = 8, at_once = 128; // clients: in all (0: no end), and at a time
  std::chrono::seconds silence{5}, grace{10};
};

// A device to which clients are connected: one CQ for all of them, and the clients by QP number.
struct Device {
  // [device]
  Device(ibv_context *context, uint32_t at_once, EventLoop &loop)
      : channel(create_comp_channel(context)),
        cq(create_cq(context, static_cast<int>(at_once * ClientConnection::max_requests),
                     channel.get())) {
    check_rc(ibv_req_notify_cq(cq.get(), 0), "ibv_req_notify_cq");
    loop.watch(channel->fd);
  }
  // [device]
  unique_comp_channel channel;
  unique_cq cq;
  std::unordered_map<uint32_t, std::unique_ptr<ClientConnection>> clients;
};

class Server {
public:
  using Clock = ClientConnection::Clock;

  Server(const CmOptions &options, const Settings &settings)
      : options_(options), settings_(settings) {
    loop_.watch(channel_->fd);
  }

  void run() {
    // [run]
    while (!has_ended()) {
      loop_.sleep_until(next_deadline(), [&](int fd) { dispatch_event(fd); });
      if (loop_.take_stop_signal())
        begin_closing();
      check_deadlines();
      tear_down();
    }
    // [run]
    std::printf(
        "served %u clients, %u of them rping's, at most %u at once; rejected %u, dropped %u\n",
        served_, rping_, peak_, rejected_, dropped_);
  }

private:
  uint32_t clients_now() const {
    size_t count = 0;
    for (const auto &[context, device] : devices_)
      count += device.clients.size();
    return static_cast<uint32_t>(count);
  }

  bool has_ended() const {
    const bool enough = settings_.clients > 0 && served_ >= settings_.clients;
    return (closing_ || enough) && clients_now() == 0;
  }

  void dispatch_event(int fd) {
    if (fd == channel_->fd)
      take_cm_events();
    for (auto &[context, device] : devices_)
      if (fd == device.channel->fd)
        take_completions(device);
  }

  void take_cm_events() {
    while (const unique_cm_event event = take_cm_event(channel_.get())) {
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        take_request(*event);
        continue;
      }
      // [cm-events]
      auto *client = static_cast<ClientConnection *>(event->id->context);
      if (client == nullptr) { // an event of the listener
        if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
          throw Error(name_of(event->event), "the listener has lost its device");
        continue;
      }
      switch (event->event) {
      case RDMA_CM_EVENT_ESTABLISHED:
        client->established();
        break;
      case RDMA_CM_EVENT_DISCONNECTED: // the client has finished, or its process has died
        client->close();
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT: // its QP number may be used again
        break;
      default:
        drop(*client, name_of(event->event));
      }
      // [cm-events]
    }
  }

  void take_request(const rdma_cm_event &event) {
    // [request]
    unique_cm_id id(event.id);
    id->context = nullptr; // it was a copy of the listener's
    const auto hello = greeting_in(event.param.conn);
    const Refusal why = hello && hello->version != protocol_version ? Refusal::version
                        : closing_                                  ? Refusal::closing
                        : clients_now() >= settings_.at_once        ? Refusal::full
                                                                    : Refusal::none;
    if (why != Refusal::none) {
      const Greeting no = greeting(why);
      rdma_reject(id.get(), &no, sizeof no); // the client may have gone
      ++rejected_;
      return;
    }
    // [request]
    try {
      Device &device =
          devices_.try_emplace(id->verbs, id->verbs, settings_.at_once, loop_).first->second;
      auto client = std::make_unique<ClientConnection>(std::move(id), !hello, device.cq.get(),
                                                       options_.timeout, settings_.silence);
      client->accept(event.param.conn);
      const uint32_t number = client->qp()->qp_num;
      device.clients.emplace(number, std::move(client));
      peak_ = std::max(peak_, clients_now());
    } catch (const std::exception &error) {
      // The server cannot serve this client. Destroying its objects, with the id, rejects it.
      std::fprintf(stderr, "a client could not be accepted: %s\n", error.what());
      ++rejected_;
    }
  }

  // [completions]
  void take_completions(Device &device) {
    while (take_event(device.channel.get()) != nullptr)
      ;
    check_rc(ibv_req_notify_cq(device.cq.get(), 0), "ibv_req_notify_cq"); // arm, then poll
    std::array<ibv_wc, 32> done{};
    while (const size_t count = poll_batch(device.cq.get(), done))
      for (size_t i = 0; i < count; ++i)
        if (const auto found = device.clients.find(done.at(i).qp_num);
            found != device.clients.end())
          guarded(*found->second, [&](ClientConnection &client) { client.completed(done.at(i)); });
  }
  // [completions]

  Clock::time_point next_deadline() const {
    const bool in_grace = closing_ && Clock::now() < grace_ends_;
    auto next = in_grace ? grace_ends_ : Clock::time_point::max();
    for (const auto &[context, device] : devices_)
      for (const auto &[number, client] : device.clients)
        next = std::min(next, client->deadline());
    return next;
  }

  void check_deadlines() {
    const bool no_more_grace = closing_ && Clock::now() >= grace_ends_;
    for (auto &[context, device] : devices_)
      for (auto &[number, client] : device.clients) {
        if (no_more_grace)
          client->close();
        else if (Clock::now() >= client->deadline())
          guarded(*client, [](ClientConnection &late) { late.overdue(); });
      }
  }
  // An error that one client causes ends only that client's connection.
  template <typename Action> void guarded(ClientConnection &client, Action action) {
    try {
      action(client);
    } catch (const std::exception &error) {
      drop(client, error.what());
    }
  }

  void drop(ClientConnection &client, const char *why) {
    if (client.is_closed())
      return;
    std::fprintf(stderr, "dropped a client%s: %s\n", client.is_rping() ? " of rping's" : "", why);
    client.dropped = true;
    client.close();
  }

  // Called after all events of this turn, so that no event leads to a destroyed client.
  void tear_down() {
    for (auto &[context, device] : devices_)
      std::erase_if(device.clients, [&](const auto &entry) {
        const ClientConnection &client = *entry.second;
        if (client.is_gone()) {
          ++(client.dropped ? dropped_ : served_);
          rping_ += !client.dropped && client.is_rping();
        }
        return client.is_gone();
      });
  }

  void begin_closing() {
    if (!closing_)
      std::printf("closing: no new clients, and %u may finish\n", clients_now());
    // A second signal means: do not wait.
    grace_ends_ = closing_ ? Clock::now() : Clock::now() + settings_.grace;
    closing_ = true;
  }

  const CmOptions &options_;
  const Settings settings_;
  EventLoop loop_;
  unique_event_channel channel_ = create_event_channel();
  unique_cm_id listener_ = cm_listen(channel_.get(), options_, static_cast<int>(settings_.at_once));
  // The devices, with their clients. Declared after the channel to which the clients report, so
  // they are destroyed before it.
  std::map<ibv_context *, Device> devices_;
  bool closing_ = false;
  Clock::time_point grace_ends_;
  uint32_t served_ = 0, rping_ = 0, peak_ = 0, rejected_ = 0, dropped_ = 0;
};

void many_server(int argc, char **argv) {
  CommandLine line{"Serves many clients at a time, ours and rping's. SIGTERM lets them finish."};
  CmOptions options{line, "the address to listen on [all of them]"};
  Settings settings;
  line.add("--clients", settings.clients,
           "end after so many that were not dropped; 0: serve until SIGTERM [8]", 0, 1'000'000);
  line.add("--at-once", settings.at_once, "how many clients at a time [128]", 1, 4096);
  line.add("--silence", settings.silence, "after which the server probes a client's host");
  line.add("--grace", settings.grace, "for which clients may go on after SIGTERM");
  line.parse(argc, argv);
  Server(options, settings).run();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, many_server);
}

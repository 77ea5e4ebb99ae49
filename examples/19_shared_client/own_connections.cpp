// What the shared client is compared with: processes that each have a connection of their own to the same server, in the same
// protocol, with slots that are shared with nobody.
//
// Lesson:  lessons/20_measure.md
// By hand: slot_server --group 1 --clients 4      the server, which answers each request by itself
//          own_connections --host ADDRESS         four processes, one connection each

#include "many_askers.hpp"
#include "rdma_connection.hpp"
#include "wire.hpp"

#include <rdmacommon/immediate.hpp>

#include <poll.h>

#include <array>
#include <cstdio>

using namespace rdmacommon;
using namespace rdmashared;
using namespace shared_client;

namespace {

constexpr uint32_t slots = 64, slot_size = 64;

// [asker]
// One process: its device, its connection, its slots. A slot is free again when its answer has come.
class Asker {
public:
  Asker(const CmOptions &options, const Askers &askers)
      : options_(options), askers_(askers), channel_(create_event_channel()),
        id_(create_cm_id(channel_.get())) {
    cm_resolve(id_.get(), channel_.get(), options);
    connection_.emplace(id_.get(), askers.in_flight, slots);
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    mirror_.mine = connection_->reg(requests_, IBV_ACCESS_LOCAL_WRITE);
    const ibv_mr *open_to_server = connection_->reg(answers_, access);
    const HelloBytes hello =
        to_bytes({.purpose = Purpose::requests,
                  .shape = {.slots = slots,
                            .slot_size = slot_size,
                            .window = askers.in_flight,
                            .largest = 0},
                  .answers_address = reinterpret_cast<uint64_t>(answers_.data()),
                  .data_address = 0,
                  .token = 0,
                  .answers_rkey = open_to_server->rkey,
                  .data_rkey = 0});
    rdma_conn_param parameters = connection_parameters(&hello, sizeof hello);
    check_errno(rdma_connect(id_.get(), &parameters), "rdma_connect");
    const unique_cm_event event =
        wait_for_cm_event(channel_.get(), RDMA_CM_EVENT_ESTABLISHED, options.timeout);
    const auto welcome = welcome_in(private_data(*event));
    if (!welcome || welcome->window < askers.in_flight)
      throw Error("the server", "it lets less be under way than is wanted", Where::here());
    mirror_.slot_size = slot_size;
    mirror_.address = welcome->requests_address;
    mirror_.rkey = welcome->requests_rkey;
    mirror_.most_inline = inline_bytes;
  }

  void ask_all() {
    while (answered_ < askers_.requests) {
      while (asked_ < askers_.requests && asked_ - answered_ < askers_.in_flight &&
             !is_taken_.at(asked_ % slots) && connection_->runs.queue.room() > 0)
        add_request();
      connection_->runs.queue.post(); // all of them in one call
      take_answers();
    }
  }
  // [asker]

private:
  std::span<std::byte> bytes_of(std::vector<std::byte> &memory, uint32_t slot) const {
    return std::span(memory).subspan(size_t{slot} * slot_size + sizeof(SlotHeader), askers_.size);
  }

  void add_request() {
    const uint32_t slot = asked_ % slots;
    const SlotHeader header = header_of(
        {.kind = Kind::request, .slot = slot, .slots = 1, .length = askers_.size, .id = asked_});
    std::memcpy(requests_.data() + size_t{slot} * slot_size, &header, sizeof header);
    make_request(bytes_of(requests_, slot), askers_.size, 0, asked_);
    add_run(connection_->runs.queue, mirror_, {.first = slot, .count = 1},
            static_cast<uint32_t>(sizeof header) + askers_.size);
    is_taken_.at(slot) = true;
    ++asked_;
  }

  void take_answers() {
    const size_t count = connection_->poll(done_);
    if (count == 0)
      return sleep();
    for (const ibv_wc &wc : std::span(done_).first(count)) {
      check_wc(wc, "a request or a receive");
      if ((wc.opcode & IBV_WC_RECV) == 0)
        connection_->runs.queue.completed(wc);
      else
        take_run(connection_->receiver.received(wc));
    }
    connection_->receiver.repost();
  }

  void take_run(Run run) {
    for (uint32_t slot = run.first; slot < run.first + run.count; ++slot) {
      if (!is_taken_.at(slot) || !is_response(bytes_of(answers_, slot), bytes_of(requests_, slot)))
        throw Error("a response", "it is not to this request", Where::here());
      is_taken_.at(slot) = false;
      ++answered_;
    }
  }

  void sleep() {
    if (!connection_->arm())
      return; // what has come meanwhile is not told
    pollfd file{.fd = connection_->fd(), .events = POLLIN, .revents = 0};
    const auto limit = std::chrono::milliseconds(options_.timeout).count();
    if (check_errno(poll(&file, 1, static_cast<int>(limit)), "poll") == 0)
      throw Error("a response", "it does not come", Where::here());
    connection_->take_event();
  }

  const CmOptions &options_;
  const Askers &askers_;
  std::vector<std::byte> requests_ = std::vector<std::byte>(size_t{slots} * slot_size),
                         answers_ = requests_;
  std::array<bool, slots> is_taken_{};
  uint32_t asked_ = 0, answered_ = 0;
  unique_event_channel channel_;
  unique_cm_id id_;
  std::optional<Connection> connection_;
  SlotMirror mirror_{};
  std::array<ibv_wc, 64> done_{};
};

void own_connections(int argc, char **argv) {
  CommandLine line{"Processes that ask a slot_server, each by a connection of its own."};
  const CmOptions options{line, "the server"};
  Askers askers;
  askers.add_to(line);
  line.parse(argc, argv);
  run_askers(askers, [&](uint32_t, const std::function<void()> &ready) {
    Asker asker(options, askers);
    ready();
    asker.ask_all();
  });
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, own_connections);
}

// SPDX-License-Identifier: MIT
// A peer of 21_group_send that does one thing wrong: for test_group_send.py.
#include "group_protocol.hpp"
#include "group_side.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <arpa/inet.h>

#include <array>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

class Liar {
public:
  Liar(Side &side, std::span<std::byte> slots, const Settings &settings)
      : side_(side), slots_(slots), settings_(settings) {}

  void as_client(const std::string &lie) {
    say(0, {.length = sizeof(Begin), .kind = begin, .flags = 0, .id = 0},
        Begin{htonl(protocol_version), htonl(settings_.shape.slots),
              htonl(settings_.shape.slot_size), htonl(settings_.processes)});
    receive(); // the credit
    const uint32_t size = settings_.shape.slot_size;
    if (lie == "beyond")
      write({1023, 2}, 0, 0);
    else if (lie == "short")
      write({1, 4}, 1, size);
    else if (lie == "outside")
      write({1023, 1}, 1024, size);
    else if (lie == "elsewhere")
      write({9, 1}, 1, 20);
    else if (lie == "kind")
      say(1, {.length = 4, .kind = 9, .flags = 0, .id = 0}, Checksum{});
    else if (lie == "send")
      send();
  }

  void as_server(const std::string &lie) {
    receive();
    if (lie == "other")
      write({1, 1}, 0, 0);
    else if (lie == "twice")
      write({0, 1}, 0, 0), write({0, 1}, 0, 0);
    else if (lie == "send")
      send();
  }

private:
  // `bytes` of slot `slot`, and the immediate data say that it is `run`. This is what add_run()
  // does not let through.
  void write(Run run, uint32_t slot, uint32_t bytes) {
    ibv_sge local{.addr = reinterpret_cast<uint64_t>(slots_.data()) +
                          size_t{slot % settings_.shape.slots} * settings_.shape.slot_size,
                  .length = bytes,
                  .lkey = side_.mr->lkey};
    side_.queue.add({.sg_list = &local,
                     .num_sge = bytes > 0 ? 1 : 0,
                     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                     .imm_data = to_immediate(run),
                     .wr = {.rdma = {.remote_addr = side_.mirror.address +
                                                    uint64_t{slot} * settings_.shape.slot_size,
                                     .rkey = side_.mirror.rkey}}});
    side_.queue.post();
  }

  template <typename Body> void say(uint32_t slot, SlotHeader header, const Body &body) {
    write_message(slots_.subspan(size_t{slot} * settings_.shape.slot_size), header, body);
    write({slot, 1}, slot, sizeof header + sizeof body);
  }

  void send() {
    side_.queue.add({.opcode = IBV_WR_SEND});
    side_.queue.post();
  }

  void receive() {
    std::array<ibv_wc, 1> wc;
    do {
      side_.wait(wc);
      check_wc(wc[0], "a request");
    } while ((wc[0].opcode & IBV_WC_RECV) == 0);
  }

  Side &side_;
  std::span<std::byte> slots_;
  const Settings &settings_;
};

void lying_runs(int argc, char **argv) {
  CommandLine line{"Talks to group_send, and lies."};
  PairOptions options{line};
  std::string lie;
  line.add("--lie", lie, "what is wrong");
  line.parse(argc, argv);

  const Settings settings;
  const Port port = open_port(options);
  const uint32_t slots = lie == "memory" ? settings.shape.slots / 2 : settings.shape.slots;
  std::vector<std::byte> memory(size_t{slots} * settings.shape.slot_size);
  Exchange exchange(options);
  Side side(port, exchange, options, settings, memory);
  Liar liar(side, memory, settings);
  if (options.is_server())
    liar.as_server(lie);
  else
    liar.as_client(lie);
  if (lie != "gone")
    side.sleep(); // until the other side has had enough
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_runs);
}

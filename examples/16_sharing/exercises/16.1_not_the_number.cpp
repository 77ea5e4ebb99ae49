// SPDX-License-Identifier: MIT
// Exercise 16.1 (★): share new memory with a process that was forked before the memory was made.
// Wanted:   the reader sees what the NIC has written.
// Hints: ./lab hint 16.1
// Check: ./lab check 16.1

#include "slots.hpp"
#include "fd_passing.hpp"
#include "loopback_qp.hpp"

#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

void not_the_number(int argc, char **argv) {
  CommandLine line{"Passes memory to a process that was there before it."};
  DeviceOptions options{line};
  line.parse(argc, argv);
  const Limit limit(5000);

  Child reader([&](const Link &owner) {
    // TODO: this is a number, and not a file of ours.
    const File file(std::stoi(owner.receive(limit)));
    const MappedSlots shared(file.get());
    owner.receive(limit);
    owner.send(get(shared->slots[1].request));
  });
  const File memory = make_memory();
  const MappedSlots shared(memory.get());
  const LoopbackQp rdma(options, &*shared, sizeof(Slots));
  reader.link().send(std::to_string(memory.get()));

  put(shared->slots[0].request, "written by the NIC");
  ibv_sge from = piece(rdma.mr.get(), &shared->slots[0].request, text_size);
  ibv_sge into = piece(rdma.mr.get(), &shared->slots[1].request, text_size);
  post_recv(rdma.qp.get(), {.sg_list = &into, .num_sge = 1});
  post_send(rdma.qp.get(), {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND});
  rdma.wait_for_message(limit);
  reader.link().send("look");
  std::printf("the reader sees \"%s\"\n", reader.link().receive(limit).c_str());
  reader.wait(limit);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, not_the_number);
}

// SPDX-License-Identifier: MIT
// A process that shares memory with the program of 16_sharing and does one thing wrong: for
// test_sharing.py.
#include "slots.hpp"
#include "fd_passing.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>

#include <fcntl.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

constexpr Limit limit(10000);

void as_worker(const std::string &name, const std::string &lie) {
  const Link owner = attach_to(name);
  std::vector<File> files;
  const auto number = static_cast<size_t>(std::stoi(receive_with_files(owner, files, 1, limit)));
  const MappedSlots shared(files[0].get());
  Slot &slot = shared->slots.at(number);
  slot.length = lie == "long" ? text_size + 1 : lie == "empty" ? 0 : text_size;
  if (lie == "gone")
    return;
  if (lie == "silence") {
    owner.can_receive(limit); // until the owner is gone
    return;
  }
  if (lie == "shrink") {
    const int rc = ftruncate(files[0].get(), 0);
    std::printf("shrinking: %s\n", rc == 0 ? "done" : strerrorname_np(errno));
    return;
  }
  if (lie == "words" || lie == "control") {
    owner.send(lie == "words" ? "format the disk" : "received \033[2J");
    return;
  }
  do
    owner.send("ready");
  while (lie == "greedy" && owner.receive(limit) == "done");
  owner.can_receive(limit);
}

void as_owner(const std::string &name, const std::string &lie) {
  const Link listener = listen_as(name);
  std::printf("serving as %s\n", name.c_str());
  if (!listener.can_receive(limit))
    throw Error("a worker", "none has come");
  const Link worker = accept_if_us(listener);
  const File memory = make_memory();
  const MappedSlots shared(memory.get());
  shared->version = lie == "version" ? slots_version + 1 : slots_version;
  const File small(check_errno(memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd"));
  const File unsealed(check_errno(memfd_create("unsealed", MFD_CLOEXEC), "memfd_create"));
  check_errno(ftruncate(unsealed.get(), sizeof(Slots)), "ftruncate");
  check_errno(fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK), "F_ADD_SEALS");
  const File null(check_errno(open("/dev/null", O_RDWR | O_CLOEXEC), "open"));
  const int file = lie == "small"      ? small.get()
                   : lie == "unsealed" ? unsealed.get()
                   : lie == "null"     ? null.get()
                                       : memory.get();
  if (lie == "silence")
    worker.can_receive(limit);
  else if (lie == "no-file")
    worker.send("2");
  else if (lie == "two-files")
    send_with_files(worker, "2", std::array{file, file});
  else if (lie == "many-files")
    send_with_files(worker, "2", std::array{file, file, file, file});
  else if (lie == "no-device")
    send_with_files(worker, "1 2 3", std::array{null.get(), file});
  else if (lie == "no-handles")
    send_with_files(worker, "1 2", std::array{null.get(), file});
  else if (lie == "huge-handle")
    send_with_files(worker, "1 4294967296 3", std::array{null.get(), file});
  else
    send_with_files(worker, lie == "slot" ? "4" : lie == "words" ? "two" : "2", std::array{file});
  if (lie == "refuse") {
    worker.receive(limit);
    worker.send("no");
  }
  worker.can_receive(limit); // until it is gone
}

void lying_sharer(int argc, char **argv) {
  CommandLine line{"Shares memory, and lies."};
  DeviceOptions options{line};
  std::string serve, attach, lie;
  line.add("--serve", serve, "as the owner");
  line.add("--attach", attach, "as a worker");
  line.add("--lie", lie, "which");
  line.parse(argc, argv);
  attach.empty() ? as_owner(serve, lie) : as_worker(attach, lie);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, lying_sharer);
}
